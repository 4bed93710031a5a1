"""The `triptych` command and the local stack. Starts the other houses as processes, imports none of their insides."""
