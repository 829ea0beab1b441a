"""What the speed claims are measured with: ratios, side by side in one run."""
