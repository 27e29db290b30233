#!/bin/sh
# Run once, on an empty database. Parley's role owns its tables and is no superuser: row-level security,
# the second net between organizations, holds for nobody who is one.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$PARLEY_DATABASE_PASSWORD" --username "${POSTGRES_USER:-postgres}" <<'SQL'
CREATE ROLE parley LOGIN PASSWORD :'password';
CREATE DATABASE parley OWNER parley;
SQL
