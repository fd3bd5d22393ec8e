"""Entries: what Shunter knows before it imports an implementation. Nothing else is imported here."""

from shunter.registry import Entry

WIDE = Entry(target="shunter_example.wide:WIDE", capabilities={"has_hidden_layers": False})
POLY = Entry(target="shunter_example.roles:poly_losses")
BRIER = Entry(target="shunter_example.roles:brier_score")
JSONL = Entry(target="shunter_example.roles:open_jsonl", capabilities={"description": "JSON lines: jsonl:FILE"})
JOURNAL = Entry(target="shunter_example.roles:JOURNAL")
SHUFFLED = Entry(target="shunter_example.roles:Shuffled")
PATIENT = Entry(target="shunter_example.roles:Patient")
