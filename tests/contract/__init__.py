"""The contract documents as TOML tables: what each names, and where it is here; `test_contract.py` checks them."""
