"""Writing topics with ``df.write`` and ``df.writeStream``.

`options` and `records` check columns and convert rows. `writer` sends records at least once. `exactly_once` stages them
in files, and `committer` writes these with the help of a `commit_plan`. `transactional` writes them in Kafka's
transactions, and its `decision` says which are to be committed. Imported by
:mod:`barnabas_pipeline.datasource`.
"""
