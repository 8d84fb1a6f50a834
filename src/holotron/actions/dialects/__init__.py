"""How others write the same actions: for each vocabulary one file with a way there and a way back.

Every `to_*` gives what stands for one of our actions, several in a row where there is no single one; every `from_*`
reads such a row and folds it again. Points are counted in a Space that the caller names. What cannot be said is
Inexpressible, and what has no meaning is an ActionError; nothing else is raised. Each file lists what is lost
on the way there and back.
"""
