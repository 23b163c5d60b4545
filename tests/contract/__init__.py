"""The contract documents as TOML tables: what each names, and its equivalent here; `test_contract.py` checks them."""
