"""What the tests share and no user needs: models, scenes, servers that only crash tests want, jobs driven through many lives.

A module here is imported as `support.NAME`; nothing of it is in the package that is installed.
"""
