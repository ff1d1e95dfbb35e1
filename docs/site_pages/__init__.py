"""The pages of the site that are written from the code when it is built, and links between all.

Nothing here knows MkDocs; ``docs/hooks.py`` does. A page is Markdown under its path in the site.
"""
