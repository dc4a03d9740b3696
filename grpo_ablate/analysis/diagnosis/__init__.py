"""What `grpo_ablate.analysis.diagnose` knows: names, signs, rules and remedies."""
