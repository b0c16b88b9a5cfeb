"""The HTML report of a run, from its folder alone: `page.write_page(run_folder, destination) -> Path`."""
