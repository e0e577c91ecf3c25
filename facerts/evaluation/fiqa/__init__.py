"""Face image quality assessment: qualities compared by how well they predict the errors of several recognizers."""
