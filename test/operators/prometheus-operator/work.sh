fail "not written yet"
