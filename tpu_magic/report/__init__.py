"""What results are and how they look: no framework is known here."""
