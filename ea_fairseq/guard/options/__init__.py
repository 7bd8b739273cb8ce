"""Options and start-up of fairseq's commands."""
