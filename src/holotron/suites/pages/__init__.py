"""Full-size pages made from a seed, each with a task, a reward and a teacher."""
