"""A local web page: translate, read, and look inside. ``pip install ea_fairseq[page]``

work.py         one request after the other, with bounds on their number and time
limits.py       what every request must keep to before anything looks at it
connections.py  how long a connection may take, and how many there may be
api.py          the JSON API
server.py       all of it on a port
page.html, page.css, page.js   what the browser shows; nothing else is loaded
"""
