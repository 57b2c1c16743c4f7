mod stores;
