"""Labels for screens and episodes by the thousand: from pages, models and judges."""
