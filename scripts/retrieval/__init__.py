"""What measure_retrieval.py does: vectors of three collections, and tables of nDCG@10."""
