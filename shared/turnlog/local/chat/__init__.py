"""`turnlog chat`: models, tools, and the talk itself."""
