"""Formulas held against every op of torch's database, as pytest runs them: scripts/checks/run formulas."""
