"""From text to a model's tokens and back: one copy for preparing a corpus and using a model.

usual_form.py  characters that look alike, as a model's text has them
lines.py     lines of a file or of standard input, whatever bytes they contain
tokens.py    cleaning, normalising, tokenising, detokenising
subwords.py  applying BPE or sentencepiece
pieces.py    words of their pieces
control_words.py  fairseq's own symbols in a text
sentences.py where a sentence ends
processing.py  all of it, for a model
"""
