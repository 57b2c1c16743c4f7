-- Jobs and the user's own records in one transaction: with SQLite that is the library's to do, so nothing is needed here.
select 1;
