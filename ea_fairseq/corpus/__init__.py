"""Preparation of corpora, parallel or of one language, from raw files to fairseq's binary data.

Reading order:

    config.py     what a corpus.yml may say, and its defaults
    inputs.py     which files a corpus needs, and where they are (local, downloaded, in an archive)
    download.py   fetching one file: mirrors, resuming, checksum
    archives.py   taking single files out of tar and zip archives
    readers.py    file formats -> pairs of sentences
    holding_out.py  validation and test sets out of training text
    mixing.py     several parts: weights, and tags for back-translated text
    cleaning.py   which pairs to train on (a sentence's own rules: ea_fairseq/text/)
    parallel.py   a function over a stream, on all cores, in order, with flat memory
    subwords.py   learning BPE or sentencepiece
    binarize.py   fairseq-preprocess
    pipeline.py   the steps in order, each written whole or not at all
    cldr.py       the corpus that is generated instead of read (cldr_content.py: what it speaks
                  of; cldr_voice.py: how one language says it)
"""
