BEGIN TRANSACTION;
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('2f57773a3394e23adc263654655459a83f84b64d7d726536a15e57551a1653e9',9);
INSERT INTO "blobs" VALUES('ab0e5a3d05931ab9a05f4275dc0565dff463122a698194fe1fd3773be3568d11',20);
INSERT INTO "blobs" VALUES('6d500d95db908958f394161cf3fce84b6ff378d4d4890192336856af567cea3d',9);
INSERT INTO "blobs" VALUES('a8a6279d5ee0c49d02d5729951f373ab68d6b9b75042d90756e1a1f1f9aec347',20);
INSERT INTO "blobs" VALUES('0c6be60cbd5037993e7f110470a85ee6022fc9b8c296d525ba5bf41508191f55',9);
INSERT INTO "blobs" VALUES('e8ceee043cfb751b3166025d1d2a777f5b1b624325d7928f2116123e3df318e7',20);
INSERT INTO "blobs" VALUES('e81c5a04e9c40e1f76c5d142356316ce8d535e8b226dcd3b137228a5e68dbb48',9);
INSERT INTO "blobs" VALUES('be2c0ce4f61145cc0eb474f666c3e5e85de74a95b64c611500aef09b7eb40f37',20);
CREATE TABLE client_blobs (
	client_id VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (client_id, sha256), 
	FOREIGN KEY(sha256) REFERENCES blobs (sha256)
);
INSERT INTO "client_blobs" VALUES('ann','2f57773a3394e23adc263654655459a83f84b64d7d726536a15e57551a1653e9');
INSERT INTO "client_blobs" VALUES('ann','ab0e5a3d05931ab9a05f4275dc0565dff463122a698194fe1fd3773be3568d11');
INSERT INTO "client_blobs" VALUES('bob','6d500d95db908958f394161cf3fce84b6ff378d4d4890192336856af567cea3d');
INSERT INTO "client_blobs" VALUES('bob','a8a6279d5ee0c49d02d5729951f373ab68d6b9b75042d90756e1a1f1f9aec347');
INSERT INTO "client_blobs" VALUES('ann','0c6be60cbd5037993e7f110470a85ee6022fc9b8c296d525ba5bf41508191f55');
INSERT INTO "client_blobs" VALUES('ann','e8ceee043cfb751b3166025d1d2a777f5b1b624325d7928f2116123e3df318e7');
INSERT INTO "client_blobs" VALUES('bob','e81c5a04e9c40e1f76c5d142356316ce8d535e8b226dcd3b137228a5e68dbb48');
INSERT INTO "client_blobs" VALUES('bob','be2c0ce4f61145cc0eb474f666c3e5e85de74a95b64c611500aef09b7eb40f37');
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
INSERT INTO "clients" VALUES('ann','ann-domain',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2"}, "cpu": "x86-64", "device": "cpu", "platform": "Linux"}',99.5,'null');
INSERT INTO "clients" VALUES('bob','bob-domain',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2"}, "cpu": "x86-64", "device": "cpu", "platform": "Linux"}',99.5,'null');
INSERT INTO "clients" VALUES('zoe','zoe-domain',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2"}, "cpu": "x86-64", "device": "cpu", "platform": "Linux"}',99.5,'{"reason": "INVALID_DATA", "detail": "no images", "hint": "look", "is_fatal": true}');
CREATE TABLE evaluations (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	evaluation JSON NOT NULL, 
	PRIMARY KEY (run_id, round, client_id), 
	FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "evaluations" VALUES('old-0',1,'ann','{"client_id": "ann", "domain": "ann-domain", "counts": [{"set_name": "test", "model": "global", "correct": [3, 2, 1], "total": [10, 10, 10]}], "timings": {"seconds": 0.2}}');
INSERT INTO "evaluations" VALUES('old-0',1,'bob','{"client_id": "bob", "domain": "bob-domain", "counts": [{"set_name": "test", "model": "global", "correct": [3, 2, 1], "total": [10, 10, 10]}], "timings": {"seconds": 0.2}}');
INSERT INTO "evaluations" VALUES('old-1',1,'ann','{"client_id": "ann", "domain": "ann-domain", "counts": [{"set_name": "test", "model": "global", "correct": [3, 2, 1], "total": [10, 10, 10]}], "timings": {"seconds": 0.2}}');
INSERT INTO "evaluations" VALUES('old-1',1,'bob','{"client_id": "bob", "domain": "bob-domain", "counts": [{"set_name": "test", "model": "global", "correct": [3, 2, 1], "total": [10, 10, 10]}], "timings": {"seconds": 0.2}}');
CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	time FLOAT NOT NULL, 
	type VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	data JSON NOT NULL
);
INSERT INTO "events" VALUES(1,1.5,'round_committed','old-0',1,'','{"metrics": {"x": 0.1}}');
INSERT INTO "events" VALUES(2,2.5,'round_opened','old-0',2,'','{"cohort": ["ann", "bob"]}');
INSERT INTO "events" VALUES(3,1.5,'round_committed','old-1',1,'','{"metrics": {"x": 0.1}}');
INSERT INTO "events" VALUES(4,2.5,'round_opened','old-1',2,'','{"cohort": ["ann", "bob"]}');
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
	PRIMARY KEY (run_id, number), 
	FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "rounds" VALUES('old-0',1,'committed','["ann", "bob"]','{"role": "model", "sha256": "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437", "size_bytes": 3}','{"role": "global_cluster", "sha256": "a9837bf618692ae6b1aed0d820754ec577ecad4861daaa08bdda47f27b8fd7b5", "size_bytes": 14}','{"accuracy":0.1}','{"seconds":0.30000000000000004}','{"committed": 101.0}');
INSERT INTO "rounds" VALUES('old-0',2,'collecting','["ann", "bob"]','null','null','','','{"collecting": 102.0}');
INSERT INTO "rounds" VALUES('old-1',1,'committed','["ann", "bob"]','{"role": "model", "sha256": "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437", "size_bytes": 3}','{"role": "global_cluster", "sha256": "a9837bf618692ae6b1aed0d820754ec577ecad4861daaa08bdda47f27b8fd7b5", "size_bytes": 14}','{"accuracy":0.1}','{"seconds":0.30000000000000004}','{"committed": 101.0}');
INSERT INTO "rounds" VALUES('old-1',2,'collecting','["ann", "bob"]','null','null','','','{"collecting": 102.0}');
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
	PRIMARY KEY (run_id), 
	UNIQUE (request_id)
);
INSERT INTO "runs" VALUES('old-0','request 0','361c634464ad6acbc91fd1709345dbfa1c3520f7be89d2b089fc6748713b713c','test','completed','fedavg','{"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5},"method":{"averaging":"weighted"},"model":{"name":"resnet10","options":{},"stem":"imagenet5x5"},"run":{"clients":["ann","bob"],"cohort_size":null,"method":"fedavg","min_clients":null,"name":"test","rounds":2,"seed":0},"training":{"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"momentum":0.9,"threads":1,"weight_decay":1e-05}}','361c634464ad6acbc91fd1709345dbfa1c3520f7be89d2b089fc6748713b713c',2,0,'["ann", "bob"]',2,'{"role": "model", "sha256": "8001c27439650c5c5a6b4ed94163b5ddeb4476362c71380e613fa20dfffcef50", "size_bytes": 6}','{"role": "global_cluster", "sha256": "140bedbf9c3f6d56a9846d2ba7088798683f4da0c248231336e6a05679e4fdfe", "size_bytes": 4}',0,'weil «warum» nicht reicht: ü, it''s',100.0,101.0);
INSERT INTO "runs" VALUES('old-1','request 1','361c634464ad6acbc91fd1709345dbfa1c3520f7be89d2b089fc6748713b713c','test','running','fedavg','{"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5},"method":{"averaging":"weighted"},"model":{"name":"resnet10","options":{},"stem":"imagenet5x5"},"run":{"clients":["ann","bob"],"cohort_size":null,"method":"fedavg","min_clients":null,"name":"test","rounds":2,"seed":0},"training":{"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"momentum":0.9,"threads":1,"weight_decay":1e-05}}','361c634464ad6acbc91fd1709345dbfa1c3520f7be89d2b089fc6748713b713c',2,0,'["ann", "bob"]',2,'{"role": "model", "sha256": "8001c27439650c5c5a6b4ed94163b5ddeb4476362c71380e613fa20dfffcef50", "size_bytes": 6}','{"role": "global_cluster", "sha256": "140bedbf9c3f6d56a9846d2ba7088798683f4da0c248231336e6a05679e4fdfe", "size_bytes": 4}',0,'weil «warum» nicht reicht: ü, it''s',100.0,101.0);
CREATE TABLE schema_version (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema_version" VALUES(1);
CREATE TABLE updates (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	commit_order INTEGER NOT NULL, 
	"update" JSON NOT NULL, 
	PRIMARY KEY (run_id, round, client_id), 
	FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "updates" VALUES('old-0',1,'ann',1,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "2f57773a3394e23adc263654655459a83f84b64d7d726536a15e57551a1653e9", "size_bytes": 9}], "prototype_sets": [{"role": "local_cluster", "sha256": "ab0e5a3d05931ab9a05f4275dc0565dff463122a698194fe1fd3773be3568d11", "size_bytes": 20}], "scalars": {"norm": 0.1}, "int_lists": {"steps": [10, 20]}, "metadata": {"note": "\u00e9"}}, "num_examples": 12, "num_excluded": 1, "class_counts": [5, 3, 4], "losses": {"ce": 0.3333333333333333, "contra": 2.0}, "timings": {"train_seconds": 0.7}, "num_prototypes": 4}');
INSERT INTO "updates" VALUES('old-0',1,'bob',2,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "6d500d95db908958f394161cf3fce84b6ff378d4d4890192336856af567cea3d", "size_bytes": 9}], "prototype_sets": [{"role": "local_cluster", "sha256": "a8a6279d5ee0c49d02d5729951f373ab68d6b9b75042d90756e1a1f1f9aec347", "size_bytes": 20}], "scalars": {"norm": 0.1}, "int_lists": {"steps": [10, 20]}, "metadata": {"note": "\u00e9"}}, "num_examples": 12, "num_excluded": 1, "class_counts": [5, 3, 4], "losses": {"ce": 1e-300}, "timings": {"train_seconds": 0.7}, "num_prototypes": 4}');
INSERT INTO "updates" VALUES('old-1',1,'ann',3,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "0c6be60cbd5037993e7f110470a85ee6022fc9b8c296d525ba5bf41508191f55", "size_bytes": 9}], "prototype_sets": [{"role": "local_cluster", "sha256": "e8ceee043cfb751b3166025d1d2a777f5b1b624325d7928f2116123e3df318e7", "size_bytes": 20}], "scalars": {"norm": 0.1}, "int_lists": {"steps": [10, 20]}, "metadata": {"note": "\u00e9"}}, "num_examples": 12, "num_excluded": 1, "class_counts": [5, 3, 4], "losses": {"ce": 0.3333333333333333, "contra": 2.0}, "timings": {"train_seconds": 0.7}, "num_prototypes": 4}');
INSERT INTO "updates" VALUES('old-1',1,'bob',4,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "e81c5a04e9c40e1f76c5d142356316ce8d535e8b226dcd3b137228a5e68dbb48", "size_bytes": 9}], "prototype_sets": [{"role": "local_cluster", "sha256": "be2c0ce4f61145cc0eb474f666c3e5e85de74a95b64c611500aef09b7eb40f37", "size_bytes": 20}], "scalars": {"norm": 0.1}, "int_lists": {"steps": [10, 20]}, "metadata": {"note": "\u00e9"}}, "num_examples": 12, "num_excluded": 1, "class_counts": [5, 3, 4], "losses": {"ce": 1e-300}, "timings": {"train_seconds": 0.7}, "num_prototypes": 4}');
CREATE INDEX runs_by_age ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX events_by_run ON events (run_id, sequence);
CREATE INDEX updates_by_client ON updates (client_id, commit_order);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',4);
COMMIT;
