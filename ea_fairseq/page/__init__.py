"""A local web page: translate, read, and look inside. ``pip install ea_fairseq[page]``

work.py         one request after the other, with bounds on their number and time
guard.py        what every request must keep to before anything looks at it
api.py          the JSON API
description.py  a page that describes it
server.py       all of it on a port
page.html, page.css, page.js   what the browser shows; nothing else is loaded
"""
