"""`steelyard study`: the field's experiments on answer lengths, repeated on the local model.

`asking` talks to the box as any client does, `running` keeps several requests under way and
`store` what they gave, so that an interrupted study goes on. Each experiment is a module that
makes the jobs and reads the answers: `grid`, `structure`, `limits`; `drift` and `bytesize` need no
daemon. `tables` and `plots` show what they found. The daemon imports nothing of this.
"""
