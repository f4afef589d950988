"""What will happen until morning: the stories, their time and cost, and what will stop them.

`snapshot` has what is known now. `simulation` plays the night through, with the daemon's own run queue and
its own choice of the next story; `planning` makes one value of that, `rendering` a screen. All of it is pure:
the same snapshot gives the same plan, and nothing here asks the journal, a project or a clock.
"""
