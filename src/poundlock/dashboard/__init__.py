"""`poundlock dashboard`: one page for all jobs of a user on a machine, and for those of checkpoint roots that machines share."""
