"""Using a trained model.

model_folder.py        a model as a folder: weights, dictionaries, text settings; nothing that runs
fairseq_checkpoint.py  such a folder made of a checkpoint of fairseq's, and back
export_checkpoint.py   such a folder made of any checkpoint
build_model.py         fairseq's models out of plain options and weights
search.py              beam search
sampling.py            tokens drawn at random in it
compiled_models.py     which models the compiled library translates with, as it wants them
decoders.py            a model's decoder step by step, compiled or fairseq's own
text_model.py          what the two classes that follow share: folders, loaded, and their text
translator.py          `Translator`: text in, text out
language_model.py      `LanguageModel`: the beginning of a text in, the whole text out
attention_maps.py      what every attention of a model looked at
map_views.py           those maps as people look at them: fresh, what is added, evolved
plots.py               pictures of them
map_statistics.py      what they are like over a corpus, by layer
"""

from .. import plugin  # noqa: F401  (whoever imports fairseq behind it has the models)
