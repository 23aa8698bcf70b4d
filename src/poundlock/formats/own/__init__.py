"""What users write down of formats: their own, and how files of Parquet are laid out."""
