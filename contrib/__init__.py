"""Methods on the plug-in API that live outside of the package; README.md says how."""
