"""What lies between drawing and training: prompts, masks, advantages, data, resumes."""
