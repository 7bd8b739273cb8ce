"""The papers' other systems, on ``ea_fairseq.attention``; none needs fairseq.

graphs.py    graph attention networks whose edges' logits evolve (EA-GAT), on torch_geometric
resnets.py   augmented ResNets (AA-ResNet, EA-AA-ResNet), beside torchvision's, whose weights load
series/      time series: DC-Transformer, EA-DC-Transformer, as scikit-learn's estimators too
torchvision_operators.py   lets torchvision be imported beside a CPU build of torch
"""
