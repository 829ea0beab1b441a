# Shorthand; tools/dev.py does the work and needs no make.
.PHONY: demo test lint bench
demo test lint bench:
	python3 tools/dev.py $@
