"""The data of a run: observations, policy, actions and events. Frozen values, standard library only."""
