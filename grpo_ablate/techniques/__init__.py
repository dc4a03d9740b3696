"""The levers of the study: one module a Hydra group, one public function a legal value."""
