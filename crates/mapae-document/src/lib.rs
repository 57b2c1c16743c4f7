//! PDF and spreadsheet to pages, tables and text.
