"""What is known of fairseq's options, beyond fairseq's own parsers.

table.py   one record an option: range, form of its text, other names
checks.py  values against the table, and against each other
values.py  values on a command line that give wrong results without a word
"""
