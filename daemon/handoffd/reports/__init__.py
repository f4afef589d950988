"""What people in a chat are told: short texts in their language, made from plain JSON and templates."""
