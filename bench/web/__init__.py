"""What the web app costs a browser while a reply streams into it."""
