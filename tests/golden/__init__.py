"""Golden results: hashes and texts of what the package gives, beside those that are committed.

`make golden` names every difference. The parts are in `PARTS` of `parts`; what is expected lies in
`expected/`, a JSON file for each part and a text file for each text.
"""
