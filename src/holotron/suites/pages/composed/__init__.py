"""Pages put together by chance: controls make up blocks, and blocks stand openly or behind tabs, folds and dialogs.

A template says the same thing in other words and looks; here what is to be done, where it is hidden and what else
stands around it are drawn apart from each other, so that a policy has to find its way by what it reads.
"""
