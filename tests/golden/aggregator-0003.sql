BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a',256);
INSERT INTO "blobs" VALUES('54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20',360);
INSERT INTO "blobs" VALUES('10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3',360);
INSERT INTO "blobs" VALUES('674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded',528);
INSERT INTO "blobs" VALUES('805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0',360);
INSERT INTO "blobs" VALUES('e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813',528);
INSERT INTO "blobs" VALUES('767667cf83525b350902e3108e8f4cd8b69ec95bc3dc40becaa2c44b6eccd98e',360);
INSERT INTO "blobs" VALUES('65890ae4aa83d66ed56e21070a6273cabae3a2ab71af9d1a3c864e2ce064aa13',440);
CREATE TABLE client_blobs (
	client_id VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (client_id, sha256), 
	CONSTRAINT fk_client_blobs_sha256 FOREIGN KEY(sha256) REFERENCES blobs (sha256)
);
INSERT INTO "client_blobs" VALUES('ann','54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20');
INSERT INTO "client_blobs" VALUES('ann','10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3');
INSERT INTO "client_blobs" VALUES('ann','674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded');
INSERT INTO "client_blobs" VALUES('bob','805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0');
INSERT INTO "client_blobs" VALUES('bob','e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813');
CREATE TABLE clients (
	client_id VARCHAR(64) NOT NULL, 
	domain VARCHAR(64) NOT NULL, 
	num_examples INTEGER NOT NULL, 
	class_counts JSON NOT NULL, 
	environment JSON NOT NULL, 
	last_seen_at FLOAT NOT NULL, 
	problem JSON, 
	PRIMARY KEY (client_id)
);
INSERT INTO "clients" VALUES('ann','north',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null');
INSERT INTO "clients" VALUES('bob','north',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1030.0,'null');
INSERT INTO "clients" VALUES('cat','south',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null');
INSERT INTO "clients" VALUES('zoe','south',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null');
CREATE TABLE control_requests (
	request_id VARCHAR(128) NOT NULL, 
	request_hash VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	created_at FLOAT NOT NULL, 
	PRIMARY KEY (request_id), 
	CONSTRAINT fk_control_requests_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
CREATE TABLE evaluations (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	evaluation JSON NOT NULL, 
	PRIMARY KEY (run_id, round, client_id), 
	CONSTRAINT fk_evaluations_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "evaluations" VALUES('waits-ab0d51c8',1,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [6, 8, 9], "total": [10, 10, 10]}], "timings": {}}');
CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	time FLOAT NOT NULL, 
	type VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	data JSON NOT NULL
);
INSERT INTO "events" VALUES(1,1000.0,'run_created','pending-268710e7',-1,'','{"config_hash": "dcb4befd76a8246182261e70096752ec670d02baee0b9beb02419cc636523bf7"}');
INSERT INTO "events" VALUES(2,1000.0,'client_joined','',-1,'ann','{"domain": "north", "num_examples": 12}');
INSERT INTO "events" VALUES(3,1000.0,'client_joined','',-1,'bob','{"domain": "north", "num_examples": 12}');
INSERT INTO "events" VALUES(4,1000.0,'client_joined','',-1,'cat','{"domain": "south", "num_examples": 12}');
INSERT INTO "events" VALUES(5,1000.0,'client_joined','',-1,'zoe','{"domain": "south", "num_examples": 12}');
INSERT INTO "events" VALUES(6,1000.0,'run_created','waits-ab0d51c8',-1,'','{"config_hash": "fecfcdc80ef996d8021ed1d3a5abede4ab0683f394fcc7c4cfc0f1e115c16828"}');
INSERT INTO "events" VALUES(7,1000.0,'run_started','waits-ab0d51c8',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}');
INSERT INTO "events" VALUES(8,1000.0,'round_opened','waits-ab0d51c8',0,'','{"cohort": ["ann"], "phase": "initialising"}');
INSERT INTO "events" VALUES(9,1000.0,'update_committed','waits-ab0d51c8',0,'ann','{"num_examples": 0, "num_prototypes": 0}');
INSERT INTO "events" VALUES(10,1000.0,'round_committed','waits-ab0d51c8',0,'','{}');
INSERT INTO "events" VALUES(11,1000.0,'round_opened','waits-ab0d51c8',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}');
INSERT INTO "events" VALUES(12,1000.0,'update_committed','waits-ab0d51c8',1,'ann','{"num_examples": 12, "num_prototypes": 6}');
INSERT INTO "events" VALUES(13,1000.0,'update_committed','waits-ab0d51c8',1,'bob','{"num_examples": 12, "num_prototypes": 6}');
INSERT INTO "events" VALUES(14,1000.0,'client_quarantined','waits-ab0d51c8',1,'cat','{"reason": "broken scanner"}');
INSERT INTO "events" VALUES(15,1000.0,'client_dropped','waits-ab0d51c8',1,'cat','{"reason": "quarantined", "detail": "broken scanner"}');
INSERT INTO "events" VALUES(16,1011.0,'client_lost','',-1,'cat','{}');
INSERT INTO "events" VALUES(17,1011.0,'client_lost','',-1,'zoe','{}');
INSERT INTO "events" VALUES(18,1011.0,'client_dropped','waits-ab0d51c8',1,'zoe','{"reason": "lost", "detail": "not connected, last came further at 1970-01-01 00:16:40 UTC"}');
INSERT INTO "events" VALUES(19,1011.0,'round_aggregating','waits-ab0d51c8',1,'','{}');
INSERT INTO "events" VALUES(20,1030.0,'round_evaluating','waits-ab0d51c8',1,'','{}');
INSERT INTO "events" VALUES(21,1030.0,'evaluation_reported','waits-ab0d51c8',1,'ann','{}');
INSERT INTO "events" VALUES(22,1041.0,'client_lost','',-1,'bob','{}');
INSERT INTO "events" VALUES(23,1041.0,'quorum_missing','waits-ab0d51c8',1,'','{"reason": "round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (lost: not connected, last came further at 1970-01-01 00:17:10 UTC), zoe (lost: not connected, last came further at 1970-01-01 00:16:40 UTC); quarantined: cat"}');
CREATE TABLE rounds (
	run_id VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	phase VARCHAR(16) NOT NULL, 
	cohort JSON NOT NULL, 
	model JSON, 
	prototypes JSON, 
	metrics_json TEXT NOT NULL, 
	timings_json TEXT NOT NULL, 
	phase_started_at JSON NOT NULL, 
	dropped JSON, 
	PRIMARY KEY (run_id, number), 
	CONSTRAINT fk_rounds_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "rounds" VALUES('waits-ab0d51c8',0,'committed','["ann"]','{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"initialising": 1000.0, "committed": 1000.0}',NULL);
INSERT INTO "rounds" VALUES('waits-ab0d51c8',1,'evaluating','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "767667cf83525b350902e3108e8f4cd8b69ec95bc3dc40becaa2c44b6eccd98e", "size_bytes": 360}','{"role": "global_cluster", "sha256": "65890ae4aa83d66ed56e21070a6273cabae3a2ab71af9d1a3c864e2ce064aa13", "size_bytes": 440}','','','{"collecting": 1000.0, "aggregating": 1011.0, "evaluating": 1030.0}','{"cat": "quarantined: broken scanner", "zoe": "lost: not connected, last came further at 1970-01-01 00:16:40 UTC"}');
CREATE TABLE runs (
	run_id VARCHAR(64) NOT NULL, 
	request_id VARCHAR(128) NOT NULL, 
	request_hash VARCHAR(64) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	method VARCHAR(64) NOT NULL, 
	config_json TEXT NOT NULL, 
	config_hash VARCHAR(64) NOT NULL, 
	total_rounds INTEGER NOT NULL, 
	seed INTEGER NOT NULL, 
	roster JSON NOT NULL, 
	round INTEGER NOT NULL, 
	model JSON, 
	prototypes JSON, 
	is_pause_requested BOOLEAN NOT NULL, 
	reason TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	updated_at FLOAT NOT NULL, 
	quarantined JSON, 
	rejections JSON, 
	PRIMARY KEY (run_id), 
	CONSTRAINT uq_runs_request_id UNIQUE (request_id)
);
INSERT INTO "runs" VALUES('pending-268710e7','request pending','dcb4befd76a8246182261e70096752ec670d02baee0b9beb02419cc636523bf7','pending','pending','fedplcc','{"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5},"method":{"alpha":0.5,"averaging":"weighted","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"tau":0.07,"topk_rank":"weighted"},"model":{"name":"resnet10","options":{},"stem":"imagenet5x5"},"run":{"clients":["nobody"],"cohort_size":null,"method":"fedplcc","min_clients":null,"name":"pending","rounds":2,"seed":0},"training":{"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"momentum":0.9,"threads":1,"weight_decay":1e-05}}','dcb4befd76a8246182261e70096752ec670d02baee0b9beb02419cc636523bf7',2,0,'["nobody"]',-1,'null','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'waiting for clients to join',1000.0,1000.0,NULL,NULL);
INSERT INTO "runs" VALUES('waits-ab0d51c8','request 1','fecfcdc80ef996d8021ed1d3a5abede4ab0683f394fcc7c4cfc0f1e115c16828','waits','running','fedplcc','{"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5},"method":{"alpha":0.5,"averaging":"weighted","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"tau":0.07,"topk_rank":"weighted"},"model":{"name":"resnet10","options":{},"stem":"imagenet5x5"},"quorum":{"deadline_s":5.0,"every_domain":false,"min_clients":2,"on_no_quorum":"wait","silence_s":20.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"method":"fedplcc","min_clients":null,"name":"waits","rounds":2,"seed":0},"training":{"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"momentum":0.9,"threads":1,"weight_decay":1e-05}}','fecfcdc80ef996d8021ed1d3a5abede4ab0683f394fcc7c4cfc0f1e115c16828',2,0,'["ann", "bob", "cat", "zoe"]',1,'{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'round 1 has no quorum, 1 of the 2 clients that it needs; missing: bob (lost: not connected, last came further at 1970-01-01 00:17:10 UTC), zoe (lost: not connected, last came further at 1970-01-01 00:16:40 UTC); quarantined: cat',1000.0,1041.0,'{"cat": "broken scanner"}',NULL);
CREATE TABLE updates (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	commit_order INTEGER NOT NULL, 
	"update" JSON NOT NULL, 
	PRIMARY KEY (run_id, round, client_id), 
	CONSTRAINT fk_updates_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "updates" VALUES('waits-ab0d51c8',0,'ann',1,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {"feature_dim": [6]}, "metadata": {}}, "num_examples": 0, "num_excluded": 0, "class_counts": [], "losses": {}, "timings": {}, "num_prototypes": 0, "norm": null}');
INSERT INTO "updates" VALUES('waits-ab0d51c8',1,'ann',2,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": null}');
INSERT INTO "updates" VALUES('waits-ab0d51c8',1,'bob',3,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": null}');
CREATE TABLE writer (
	state VARCHAR(32) NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	transactions INTEGER NOT NULL, 
	PRIMARY KEY (state)
);
CREATE INDEX runs_by_age ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX events_by_run ON events (run_id, sequence);
CREATE INDEX updates_by_client ON updates (client_id, commit_order);
CREATE INDEX client_blobs_by_blob ON client_blobs (sha256);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',23);
COMMIT;
