CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE instance_secrets (
	name VARCHAR(40) NOT NULL, 
	sealed BLOB NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_instance_secrets PRIMARY KEY (name)
);

CREATE TABLE organizations (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(40) NOT NULL, 
	slug VARCHAR(50) NOT NULL, 
	domain VARCHAR(255), 
	is_active BOOLEAN NOT NULL, 
	settings TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_organizations PRIMARY KEY (id), 
	CONSTRAINT uq_organizations_slug UNIQUE (slug)
);

CREATE TABLE rate_windows (
	subject VARCHAR(400) NOT NULL, 
	rate_class VARCHAR(20) NOT NULL, 
	window_at BIGINT NOT NULL, 
	taken BIGINT NOT NULL, 
	CONSTRAINT pk_rate_windows PRIMARY KEY (subject, rate_class)
);

CREATE INDEX ix_rate_windows_old ON rate_windows (window_at);

CREATE TABLE users (
	id VARCHAR(36) NOT NULL, 
	email VARCHAR(320) NOT NULL, 
	username VARCHAR(100) NOT NULL, 
	platform_role VARCHAR(20) NOT NULL, 
	is_active BOOLEAN NOT NULL, 
	password_hash TEXT, 
	primary_organization_id VARCHAR(36), 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (id), 
	CONSTRAINT uq_users_email UNIQUE (email)
);

CREATE TABLE workers (
	id VARCHAR(36) NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	version VARCHAR(20) NOT NULL, 
	started_at BIGINT NOT NULL, 
	beat_at BIGINT NOT NULL, 
	draining BOOLEAN NOT NULL, host VARCHAR(255), pid INTEGER, 
	CONSTRAINT pk_workers PRIMARY KEY (id)
);

CREATE TABLE api_keys (
	id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	key_hash BLOB NOT NULL, 
	masked_key VARCHAR(40) NOT NULL, 
	opaque BOOLEAN NOT NULL, 
	organization_id VARCHAR(36), 
	rate_limit_per_minute INTEGER NOT NULL, 
	expires_at BIGINT, 
	last_used_at BIGINT, 
	created_at BIGINT NOT NULL, 
	revoked_at BIGINT, 
	CONSTRAINT pk_api_keys PRIMARY KEY (id), 
	CONSTRAINT fk_api_keys_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_api_keys_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE, 
	CONSTRAINT uq_api_keys_key_hash UNIQUE (key_hash)
);

CREATE INDEX ix_api_keys_user_id ON api_keys (user_id);

CREATE TABLE audit_log (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36), 
	category VARCHAR(20) NOT NULL, 
	operation VARCHAR(60) NOT NULL, 
	message TEXT NOT NULL, 
	detail TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_audit_log PRIMARY KEY (id), 
	CONSTRAINT fk_audit_log_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_audit_log_page ON audit_log (organization_id, created_at);

CREATE TABLE balances (
	organization_id VARCHAR(36) NOT NULL, 
	account VARCHAR(10) NOT NULL, 
	period_at BIGINT NOT NULL, 
	allowance_micro BIGINT, 
	posted_micro BIGINT NOT NULL, 
	held_micro BIGINT NOT NULL, 
	CONSTRAINT pk_balances PRIMARY KEY (organization_id, account, period_at), 
	CONSTRAINT ck_balances_account CHECK (account IN ('plan', 'wallet')), 
	CONSTRAINT ck_balances_never_negative CHECK (allowance_micro IS NULL OR allowance_micro + posted_micro - held_micro >= 0), 
	CONSTRAINT ck_balances_held CHECK (held_micro >= 0), 
	CONSTRAINT fk_balances_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE TABLE chats (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	kind VARCHAR(10) NOT NULL, 
	title TEXT NOT NULL, 
	running_id VARCHAR(36), 
	workflow_id VARCHAR(36), 
	tainted BOOLEAN NOT NULL, 
	next_seq INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	deleted_at BIGINT, 
	CONSTRAINT pk_chats PRIMARY KEY (id), 
	CONSTRAINT ck_chats_kind CHECK (kind IN ('assistant', 'composer')), 
	CONSTRAINT fk_chats_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_chats_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE INDEX ix_chats_page ON chats (organization_id, user_id, kind, updated_at, id);

CREATE TABLE credential_audit (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	credential_id VARCHAR(36) NOT NULL, 
	event_type VARCHAR(30) NOT NULL, 
	user_id VARCHAR(36), 
	changes TEXT NOT NULL, 
	ip_address VARCHAR(60), 
	user_agent VARCHAR(255), 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_credential_audit PRIMARY KEY (id), 
	CONSTRAINT fk_credential_audit_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_credential_audit_credential_id ON credential_audit (credential_id);

CREATE TABLE credentials (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	integration_name VARCHAR(100) NOT NULL, 
	integration_type VARCHAR(30) NOT NULL, 
	display_name VARCHAR(255) NOT NULL, 
	auth_type VARCHAR(20) NOT NULL, 
	sealed BLOB NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	masked VARCHAR(60) NOT NULL, 
	is_default BOOLEAN NOT NULL, 
	is_valid BOOLEAN NOT NULL, 
	metadata TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	created_by VARCHAR(36) NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	last_used_at BIGINT, 
	expires_at BIGINT, 
	refresh_until BIGINT, 
	CONSTRAINT pk_credentials PRIMARY KEY (id), 
	CONSTRAINT fk_credentials_created_by FOREIGN KEY(created_by) REFERENCES users (id) ON DELETE CASCADE, 
	CONSTRAINT fk_credentials_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_credentials_find ON credentials (organization_id, integration_name);

CREATE INDEX ix_credentials_key_id ON credentials (key_id);

CREATE UNIQUE INDEX uq_credentials_one_default ON credentials (organization_id, integration_name) WHERE is_default;

CREATE TABLE holds (
	organization_id VARCHAR(36) NOT NULL, 
	charge_key VARCHAR(160) NOT NULL, 
	period_at BIGINT NOT NULL, 
	plan_micro BIGINT NOT NULL, 
	wallet_micro BIGINT NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	state VARCHAR(10) NOT NULL, 
	created_at BIGINT NOT NULL, 
	resolved_at BIGINT, 
	CONSTRAINT pk_holds PRIMARY KEY (organization_id, charge_key), 
	CONSTRAINT ck_holds_state CHECK (state IN ('open', 'posted', 'voided')), 
	CONSTRAINT fk_holds_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_holds_open ON holds (created_at) WHERE state = 'open';

CREATE TABLE idempotency_keys (
	organization_id VARCHAR(36) NOT NULL, 
	route VARCHAR(60) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	status INTEGER NOT NULL, 
	response TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (organization_id, route, "key"), 
	CONSTRAINT fk_idempotency_keys_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE TABLE invitations (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	email VARCHAR(320) NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	status VARCHAR(10) NOT NULL, 
	message TEXT, 
	token_hash BLOB NOT NULL, 
	invited_by VARCHAR(36) NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	CONSTRAINT pk_invitations PRIMARY KEY (id), 
	CONSTRAINT ck_invitations_status CHECK (status IN ('pending', 'accepted', 'rejected', 'cancelled', 'expired')), 
	CONSTRAINT fk_invitations_invited_by FOREIGN KEY(invited_by) REFERENCES users (id) ON DELETE CASCADE, 
	CONSTRAINT fk_invitations_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT uq_invitations_token_hash UNIQUE (token_hash)
);

CREATE INDEX ix_invitations_email ON invitations (email);

CREATE INDEX ix_invitations_organization_id ON invitations (organization_id);

CREATE UNIQUE INDEX uq_invitations_one_pending ON invitations (organization_id, email) WHERE status = 'pending';

CREATE TABLE ledger (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	charge_key VARCHAR(160) NOT NULL, 
	account VARCHAR(10) NOT NULL, 
	period_at BIGINT NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	amount_micro BIGINT NOT NULL, 
	run_id VARCHAR(36), 
	integration_name VARCHAR(100), 
	item VARCHAR(200), 
	detail TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_ledger PRIMARY KEY (id), 
	CONSTRAINT ck_ledger_plan_is_spent CHECK (account = 'wallet' OR amount_micro <= 0), 
	CONSTRAINT ck_ledger_account CHECK (account IN ('plan', 'wallet')), 
	CONSTRAINT fk_ledger_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT uq_ledger_organization_id_charge_key UNIQUE (organization_id, charge_key)
);

CREATE INDEX ix_ledger_period ON ledger (organization_id, created_at, id);

CREATE INDEX ix_ledger_run_id ON ledger (run_id);

CREATE TABLE memberships (
	organization_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	joined_at BIGINT NOT NULL, 
	CONSTRAINT pk_memberships PRIMARY KEY (organization_id, user_id), 
	CONSTRAINT ck_memberships_role CHECK (role IN ('owner', 'admin')), 
	CONSTRAINT fk_memberships_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_memberships_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE INDEX ix_memberships_user_id ON memberships (user_id);

CREATE TABLE model_usage (
	run_id VARCHAR(36) NOT NULL, 
	call INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36), 
	integration_name VARCHAR(100) NOT NULL, 
	model_id VARCHAR(200) NOT NULL, 
	credential_id VARCHAR(36), 
	managed BOOLEAN NOT NULL, 
	input_tokens BIGINT NOT NULL, 
	cached_tokens BIGINT NOT NULL, 
	output_tokens BIGINT NOT NULL, 
	exact BOOLEAN NOT NULL, 
	succeeded BOOLEAN, 
	cost_micro BIGINT, 
	started_at BIGINT, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_model_usage PRIMARY KEY (run_id, call, attempt), 
	CONSTRAINT fk_model_usage_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_model_usage_period ON model_usage (organization_id, created_at);

CREATE TABLE oauth_states (
	state_hash BLOB NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	integration_name VARCHAR(100) NOT NULL, 
	sealed BLOB NOT NULL, 
	key_id VARCHAR(40) NOT NULL, 
	redirect_uri TEXT NOT NULL, 
	chat_id VARCHAR(36), 
	request_id VARCHAR(36), 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	CONSTRAINT pk_oauth_states PRIMARY KEY (state_hash), 
	CONSTRAINT fk_oauth_states_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_oauth_states_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE TABLE sign_in_links (
	token_hash BLOB NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	used_at BIGINT, 
	CONSTRAINT pk_sign_in_links PRIMARY KEY (token_hash), 
	CONSTRAINT fk_sign_in_links_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE INDEX ix_sign_in_links_user_id ON sign_in_links (user_id);

CREATE TABLE subscriptions (
	organization_id VARCHAR(36) NOT NULL, 
	plan_slug VARCHAR(40), 
	status VARCHAR(20) NOT NULL, 
	billing_interval VARCHAR(10), 
	quantity INTEGER NOT NULL, 
	anchor_at BIGINT NOT NULL, 
	paid_from_at BIGINT, 
	paid_until_at BIGINT, 
	cancel_at_period_end BOOLEAN NOT NULL, 
	overage BOOLEAN NOT NULL, 
	top_up_below_micro BIGINT, 
	top_up_amount_micro BIGINT, 
	top_up_tried_at BIGINT, 
	turn_cap_micro BIGINT, 
	stripe_customer VARCHAR(255), 
	stripe_subscription VARCHAR(255), 
	created_at BIGINT NOT NULL, 
	touched_at BIGINT NOT NULL, 
	CONSTRAINT pk_subscriptions PRIMARY KEY (organization_id), 
	CONSTRAINT fk_subscriptions_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_subscriptions_stripe_customer ON subscriptions (stripe_customer);

CREATE TABLE turn_slots (
	organization_id VARCHAR(36) NOT NULL, 
	cap INTEGER NOT NULL, 
	claimed_at BIGINT NOT NULL, 
	CONSTRAINT pk_turn_slots PRIMARY KEY (organization_id), 
	CONSTRAINT fk_turn_slots_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE TABLE messages (
	id VARCHAR(36) NOT NULL, 
	chat_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	content TEXT NOT NULL, 
	thinking TEXT, 
	run_id VARCHAR(36), 
	running_status VARCHAR(12), 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_messages PRIMARY KEY (id), 
	CONSTRAINT ck_messages_role CHECK (role IN ('human', 'ai', 'system')), 
	CONSTRAINT fk_messages_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE, 
	CONSTRAINT uq_messages_chat_id_seq UNIQUE (chat_id, seq)
);

CREATE TABLE runs (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	chat_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	turn_id VARCHAR(36) NOT NULL, 
	resumed_from VARCHAR(36), 
	status VARCHAR(12) NOT NULL, 
	llm TEXT NOT NULL, 
	owner VARCHAR(36), 
	epoch INTEGER NOT NULL, 
	lease_until BIGINT, 
	attempts INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	model_calls INTEGER NOT NULL, 
	failures_in_row INTEGER NOT NULL, 
	context_tokens BIGINT NOT NULL, 
	reason VARCHAR(40), 
	error TEXT, 
	created_at BIGINT NOT NULL, 
	started_at BIGINT, 
	updated_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT ck_runs_status CHECK (status IN ('queued', 'running', 'interrupted', 'completed', 'failed', 'cancelled', 'resumed')), 
	CONSTRAINT fk_runs_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE, 
	CONSTRAINT fk_runs_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_runs_chat_id ON runs (chat_id);

CREATE INDEX ix_runs_leased ON runs (lease_until) WHERE status = 'running';

CREATE INDEX ix_runs_queued ON runs (organization_id, created_at) WHERE status = 'queued';

CREATE INDEX ix_runs_turn_id ON runs (turn_id);

CREATE UNIQUE INDEX uq_runs_one_live ON runs (chat_id) WHERE status IN ('queued', 'running', 'interrupted');

CREATE TABLE sessions (
	token_hash BLOB NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	api_key_id VARCHAR(36), 
	created_at BIGINT NOT NULL, 
	seen_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (token_hash), 
	CONSTRAINT fk_sessions_api_key_id FOREIGN KEY(api_key_id) REFERENCES api_keys (id) ON DELETE CASCADE, 
	CONSTRAINT fk_sessions_user_id FOREIGN KEY(user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE INDEX ix_sessions_user_id ON sessions (user_id);

CREATE TABLE tool_results (
	id VARCHAR(36) NOT NULL, 
	chat_id VARCHAR(36) NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	value TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_tool_results PRIMARY KEY (id), 
	CONSTRAINT fk_tool_results_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE
);

CREATE INDEX ix_tool_results_chat_id ON tool_results (chat_id);

CREATE TABLE transcript (
	chat_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	step INTEGER NOT NULL, 
	role VARCHAR(10) NOT NULL, 
	body TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_transcript PRIMARY KEY (chat_id, seq), 
	CONSTRAINT ck_transcript_role CHECK (role IN ('user', 'assistant', 'tool', 'note', 'summary')), 
	CONSTRAINT fk_transcript_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE
);

CREATE TABLE questions (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	chat_id VARCHAR(36) NOT NULL, 
	run_id VARCHAR(36) NOT NULL, 
	user_id VARCHAR(36) NOT NULL, 
	kind VARCHAR(20) NOT NULL, 
	payload TEXT NOT NULL, 
	binding TEXT NOT NULL, 
	answer TEXT, 
	answered_by VARCHAR(36), 
	outcome VARCHAR(20) NOT NULL, 
	created_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	resolved_at BIGINT, 
	CONSTRAINT pk_questions PRIMARY KEY (id), 
	CONSTRAINT ck_questions_outcome CHECK (outcome IN ('pending', 'answered', 'skipped', 'credential_added', 'credential_failed', 'cancelled', 'expired')), 
	CONSTRAINT fk_questions_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE, 
	CONSTRAINT fk_questions_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_questions_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX uq_questions_one_open ON questions (chat_id) WHERE outcome = 'pending';

CREATE TABLE run_events (
	run_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	last_seq INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	type VARCHAR(30) NOT NULL, 
	body TEXT NOT NULL, 
	parts TEXT, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_run_events PRIMARY KEY (run_id, seq), 
	CONSTRAINT fk_run_events_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE TABLE tool_calls (
	run_id VARCHAR(36) NOT NULL, 
	step INTEGER NOT NULL, 
	chat_id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	tool_call_id VARCHAR(255) NOT NULL, 
	tool VARCHAR(60) NOT NULL, 
	input TEXT NOT NULL, 
	status VARCHAR(10) NOT NULL, 
	epoch INTEGER NOT NULL, 
	integration_name VARCHAR(100), 
	action_name VARCHAR(150), 
	credential_id VARCHAR(36), 
	effect VARCHAR(12), 
	arguments_digest VARCHAR(64), 
	idempotency_key VARCHAR(64), 
	managed BOOLEAN NOT NULL, 
	output TEXT, 
	succeeded BOOLEAN, 
	started_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	CONSTRAINT pk_tool_calls PRIMARY KEY (run_id, step), 
	CONSTRAINT ck_tool_calls_status CHECK (status IN ('started', 'asked', 'done', 'unknown', 'not_run')), 
	CONSTRAINT fk_tool_calls_chat_id FOREIGN KEY(chat_id) REFERENCES chats (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tool_calls_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT fk_tool_calls_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE INDEX ix_tool_calls_chat_id ON tool_calls (chat_id);

CREATE INDEX ix_tool_calls_usage ON tool_calls (organization_id, credential_id, started_at);

CREATE INDEX ix_holds_of_run ON holds (run_id) WHERE state = 'open';

CREATE INDEX ix_runs_newest ON runs (chat_id, created_at);

CREATE INDEX ix_transcript_summaries ON transcript (chat_id, seq) WHERE role = 'summary';

CREATE INDEX ix_tool_calls_unknown ON tool_calls (chat_id, arguments_digest) WHERE status = 'unknown';

CREATE TABLE document_pieces (
	document_id VARCHAR(36) NOT NULL, 
	seq INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_document_pieces PRIMARY KEY (document_id, seq)
);

CREATE INDEX ix_document_pieces_first ON document_pieces (created_at) WHERE seq = 0;

CREATE TABLE knowledge_bases (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	created_by VARCHAR(36) NOT NULL, 
	credential_id VARCHAR(36), 
	name VARCHAR(255) NOT NULL, 
	description TEXT, 
	provider VARCHAR(30) NOT NULL, 
	embedding_config TEXT NOT NULL, 
	chunking_config TEXT NOT NULL, 
	status VARCHAR(12) NOT NULL, 
	version INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, external_config TEXT, 
	CONSTRAINT pk_knowledge_bases PRIMARY KEY (id), 
	CONSTRAINT ck_knowledge_bases_status CHECK (status IN ('active', 'archived')), 
	CONSTRAINT fk_knowledge_bases_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE
);

CREATE INDEX ix_knowledge_bases_organization_id ON knowledge_bases (organization_id);

CREATE TABLE documents (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	knowledge_base_id VARCHAR(36) NOT NULL, 
	filename VARCHAR(255) NOT NULL, 
	file_type VARCHAR(10) NOT NULL, 
	size_bytes BIGINT NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	metadata TEXT NOT NULL, 
	status VARCHAR(12) NOT NULL, 
	progress TEXT, 
	error TEXT, 
	chunk_count INTEGER NOT NULL, 
	token_count BIGINT NOT NULL, 
	reading INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	owner VARCHAR(36), 
	epoch INTEGER NOT NULL, 
	lease_until BIGINT, 
	created_by VARCHAR(36) NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	started_at BIGINT, 
	completed_at BIGINT, 
	CONSTRAINT pk_documents PRIMARY KEY (id), 
	CONSTRAINT ck_documents_status CHECK (status IN ('pending', 'processing', 'completed', 'failed')), 
	CONSTRAINT fk_documents_knowledge_base_id FOREIGN KEY(knowledge_base_id) REFERENCES knowledge_bases (id) ON DELETE CASCADE, 
	CONSTRAINT fk_documents_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT uq_documents_knowledge_base_id_sha256 UNIQUE (knowledge_base_id, sha256)
);

CREATE INDEX ix_documents_leased ON documents (lease_until) WHERE status = 'processing';

CREATE INDEX ix_documents_organization_id ON documents (organization_id);

CREATE INDEX ix_documents_page ON documents (knowledge_base_id, created_at, id);

CREATE INDEX ix_documents_pending ON documents (created_at) WHERE status = 'pending';

CREATE TABLE chunk_vectors (
	document_id VARCHAR(36) NOT NULL, 
	first_index INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	CONSTRAINT pk_chunk_vectors PRIMARY KEY (document_id, first_index), 
	CONSTRAINT fk_chunk_vectors_document_id FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE
);

CREATE TABLE chunks (
	number INTEGER NOT NULL, 
	id VARCHAR(36) NOT NULL, 
	document_id VARCHAR(36) NOT NULL, 
	knowledge_base_id VARCHAR(36) NOT NULL, 
	chunk_index INTEGER NOT NULL, 
	content TEXT NOT NULL, 
	heading TEXT NOT NULL, 
	token_count INTEGER NOT NULL, 
	start_char INTEGER NOT NULL, 
	end_char INTEGER NOT NULL, 
	metadata TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	CONSTRAINT pk_chunks PRIMARY KEY (number), 
	CONSTRAINT fk_chunks_document_id FOREIGN KEY(document_id) REFERENCES documents (id) ON DELETE CASCADE, 
	CONSTRAINT uq_chunks_document_id_chunk_index UNIQUE (document_id, chunk_index), 
	CONSTRAINT uq_chunks_id UNIQUE (id)
);

CREATE INDEX ix_chunks_knowledge_base_id ON chunks (knowledge_base_id);

CREATE VIRTUAL TABLE chunk_words USING fts5(
        heading, content, content='', tokenize='porter unicode61 remove_diacritics 2');

CREATE TRIGGER chunks_words_insert AFTER INSERT ON chunks BEGIN
        INSERT INTO chunk_words(rowid, heading, content) VALUES (new.number, new.heading, new.content);
    END;

CREATE TRIGGER chunks_words_delete AFTER DELETE ON chunks BEGIN
        INSERT INTO chunk_words(chunk_words, rowid, heading, content)
        VALUES ('delete', old.number, old.heading, old.content);
    END;

CREATE TABLE own_integrations (
	id VARCHAR(36) NOT NULL, 
	organization_id VARCHAR(36) NOT NULL, 
	credential_id VARCHAR(36), 
	kind VARCHAR(10) NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	display_name VARCHAR(255) NOT NULL, 
	description TEXT NOT NULL, 
	source TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	created_at BIGINT NOT NULL, 
	refreshed_at BIGINT NOT NULL, 
	CONSTRAINT pk_own_integrations PRIMARY KEY (id), 
	CONSTRAINT fk_own_integrations_credential_id FOREIGN KEY(credential_id) REFERENCES credentials (id) ON DELETE CASCADE, 
	CONSTRAINT fk_own_integrations_organization_id FOREIGN KEY(organization_id) REFERENCES organizations (id) ON DELETE CASCADE, 
	CONSTRAINT uq_own_integrations_organization_id_name UNIQUE (organization_id, name)
);

CREATE UNIQUE INDEX uq_own_integrations_one_a_credential ON own_integrations (credential_id);

CREATE TABLE own_actions (
	integration_id VARCHAR(36) NOT NULL, 
	name VARCHAR(150) NOT NULL, 
	position INTEGER NOT NULL, 
	description TEXT NOT NULL, 
	body TEXT NOT NULL, 
	fingerprint VARCHAR(64) NOT NULL, 
	effect VARCHAR(12), 
	reviewed_by VARCHAR(36), 
	reviewed_at BIGINT, 
	CONSTRAINT pk_own_actions PRIMARY KEY (integration_id, name), 
	CONSTRAINT fk_own_actions_integration_id FOREIGN KEY(integration_id) REFERENCES own_integrations (id) ON DELETE CASCADE
);

CREATE INDEX ix_chats_oldest ON chats (organization_id, updated_at);

CREATE INDEX ix_questions_chat_id ON questions (chat_id);

CREATE INDEX ix_questions_run_id ON questions (run_id);

INSERT INTO alembic_version (version_num) VALUES ('0008');

