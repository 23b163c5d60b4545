"""The contract documents as tables: what each of them names, and where it is here; `test_contract.py` checks it."""
