BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE api_keys (
	key_id VARCHAR(16) NOT NULL, 
	secret_sha256 VARCHAR(64) NOT NULL, 
	kind VARCHAR(16) NOT NULL, 
	label VARCHAR(64) NOT NULL, 
	scopes JSON NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	revoked_at FLOAT, 
	digest VARCHAR(32), 
	PRIMARY KEY (key_id)
);
INSERT INTO "api_keys" VALUES('0a','abababababababababababababababababababababababababababababababab','key','Übersicht','["read", "metrics"]',10.1,20.25,NULL,'b55004c2d206c5f2ef4d73a6fed27f59');
CREATE TABLE audit (
	number INTEGER NOT NULL, 
	time FLOAT NOT NULL, 
	caller VARCHAR(128) NOT NULL, 
	credential VARCHAR(64) NOT NULL, 
	method VARCHAR(64) NOT NULL, 
	target VARCHAR(128) NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	reason VARCHAR(64) NOT NULL, 
	address VARCHAR(64) NOT NULL, 
	request_id VARCHAR(128) NOT NULL, 
	count INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "audit" VALUES(1,1.00000000012345683579e+09,'owner','','PauseRun','run','done','','','é中',1,'9aa2b6e03e87ec6a9e6d0ced582a91d0396a5fb3af2a8d97880150c9d3b9a179');
INSERT INTO "audit" VALUES(2,1.00000000012345683579e+09,'owner','','PauseRun','run','done','','','é中',1,'306ad80ab66a28c6a6cb8c49ba4649974554a75ec7860c921999c1c8421fa8fb');
CREATE TABLE blobs (
	sha256 VARCHAR(64) NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (sha256)
);
INSERT INTO "blobs" VALUES('88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a',256,'a4b71f31565bd6eefc44dc13fd69dcab');
INSERT INTO "blobs" VALUES('54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20',360,'fbcc2380cd159afcb7a8c54189c9b8cd');
INSERT INTO "blobs" VALUES('e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813',528,'6aee7d643c5ec692bd0d73a1c3f8154e');
INSERT INTO "blobs" VALUES('fce70984b19f4707fc9a38ae8bb452ece5978ab129955df101a0e6bebc87d394',528,'726b6dc53161b04edb5c7c4d430a16a7');
INSERT INTO "blobs" VALUES('bdffc699c8acff92c18fc793fe75132b793ece2abe663de4ecc3724d3ca57c5f',528,'45ccf2ad5272f0a070152cac4de9c075');
INSERT INTO "blobs" VALUES('674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded',528,'f8e323d8ee896d72e7092cbc06361eaf');
INSERT INTO "blobs" VALUES('422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5',360,'09db0856604f37851e0b379b7eef4924');
INSERT INTO "blobs" VALUES('558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8',484,'8d4243ca25616561d70728b27b5c10f1');
INSERT INTO "blobs" VALUES('104f5a451587fad048b9789f687a06b04646fed08842754438376849e1899c48',360,'32b5de0747d1418bb446d53c14bcb946');
INSERT INTO "blobs" VALUES('7de44ce0193590e2ae86a40b3532e159afcf621f3ee5688ab7988f15cb090883',528,'c405764017be452baae7ba7db825f585');
INSERT INTO "blobs" VALUES('d3ccd3c9f851d90aa66e94fc56aa844646fe7abbd917a2f94b0ce554f22fa81f',360,'7c7df3d2b9481cea6650342022e47f61');
INSERT INTO "blobs" VALUES('57f9a0699383e49110b95d419ed6a34f7d2e753fc084345de638a6b865db0d3e',528,'5ef8c9cacee3806bdfa3220a875cc628');
INSERT INTO "blobs" VALUES('8a70e56026e11cdc4861d4c9ed352d50b260a586e2bb9db4ce561794dde9df21',360,'3780df423fefdb0ccbc020ed3d22c405');
INSERT INTO "blobs" VALUES('0bdf7dec364269b8d6f7479c2e6e2839cdb3fd99e2b41e8a275ec5c75be91d32',528,'f3db3cfd6297b052dc131c41d2069cb5');
INSERT INTO "blobs" VALUES('8e6ba1239002607171747da0a220ec3f53077e5d68ced95c820c53beeb043a2e',360,'e252c2c0b3ed498e6b96de8f4aa1e65b');
INSERT INTO "blobs" VALUES('34f2424d6460a224024442671eb45e3c63c6dca5bab7a4c21ba65c96eec427cf',528,'0484d28da1dffbabf42435ea92e80d0c');
INSERT INTO "blobs" VALUES('c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86',360,'60c89d8f824602a2a069b53b3303bd39');
INSERT INTO "blobs" VALUES('c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12',616,'c169d6e0cf7a9425b3cb971e4c69dd83');
INSERT INTO "blobs" VALUES('805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0',360,'1cc8ba1f4284a340ab0948d637f23a35');
INSERT INTO "blobs" VALUES('75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8',360,'304eb21e311f34ca2f65d82092044b1f');
INSERT INTO "blobs" VALUES('7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878',360,'32f9b0fa51c3292dbe5c15a25d0ac4a8');
INSERT INTO "blobs" VALUES('10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3',360,'469a0cc5c092b96f6ed3ff138c3c9aed');
INSERT INTO "blobs" VALUES('312715e4e3810f5279cb20eb8fe471415cd69a476e958c9176057ebe71b7952c',360,'2f8a64f4a3fb69ee3af33453fcbcab35');
INSERT INTO "blobs" VALUES('0a9e5c38140f8eac7f3c37c5946a43f0bff7faa6b2ca0a85dd58e90e0aa9f0ab',288,'b828faa5cf538da0e7b713fa3aa2739d');
CREATE TABLE certificates (
	serial VARCHAR(40) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	public_key_sha256 VARCHAR(64) NOT NULL, 
	issued_at FLOAT NOT NULL, 
	not_after FLOAT NOT NULL, 
	revoked_at FLOAT, 
	pem VARCHAR(8192) NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (serial)
);
INSERT INTO "certificates" VALUES('0a','client','north','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',10.1,100.0,NULL,'-----BEGIN CERTIFICATE-----
','e556ce161a497c47e46c53375f7d09b5');
CREATE TABLE client_blobs (
	client_id VARCHAR(64) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (client_id, sha256), 
	CONSTRAINT fk_client_blobs_sha256 FOREIGN KEY(sha256) REFERENCES blobs (sha256)
);
INSERT INTO "client_blobs" VALUES('ann','54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20');
INSERT INTO "client_blobs" VALUES('bob','e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813');
INSERT INTO "client_blobs" VALUES('cat','fce70984b19f4707fc9a38ae8bb452ece5978ab129955df101a0e6bebc87d394');
INSERT INTO "client_blobs" VALUES('zoe','bdffc699c8acff92c18fc793fe75132b793ece2abe663de4ecc3724d3ca57c5f');
INSERT INTO "client_blobs" VALUES('ann','674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded');
INSERT INTO "client_blobs" VALUES('ann','104f5a451587fad048b9789f687a06b04646fed08842754438376849e1899c48');
INSERT INTO "client_blobs" VALUES('ann','7de44ce0193590e2ae86a40b3532e159afcf621f3ee5688ab7988f15cb090883');
INSERT INTO "client_blobs" VALUES('bob','d3ccd3c9f851d90aa66e94fc56aa844646fe7abbd917a2f94b0ce554f22fa81f');
INSERT INTO "client_blobs" VALUES('bob','57f9a0699383e49110b95d419ed6a34f7d2e753fc084345de638a6b865db0d3e');
INSERT INTO "client_blobs" VALUES('cat','8a70e56026e11cdc4861d4c9ed352d50b260a586e2bb9db4ce561794dde9df21');
INSERT INTO "client_blobs" VALUES('cat','0bdf7dec364269b8d6f7479c2e6e2839cdb3fd99e2b41e8a275ec5c75be91d32');
INSERT INTO "client_blobs" VALUES('zoe','8e6ba1239002607171747da0a220ec3f53077e5d68ced95c820c53beeb043a2e');
INSERT INTO "client_blobs" VALUES('zoe','34f2424d6460a224024442671eb45e3c63c6dca5bab7a4c21ba65c96eec427cf');
INSERT INTO "client_blobs" VALUES('bob','805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0');
INSERT INTO "client_blobs" VALUES('cat','75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8');
INSERT INTO "client_blobs" VALUES('zoe','7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878');
INSERT INTO "client_blobs" VALUES('ann','10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3');
CREATE TABLE clients (
	client_id VARCHAR(64) NOT NULL, 
	domain VARCHAR(64) NOT NULL, 
	num_examples INTEGER NOT NULL, 
	class_counts JSON NOT NULL, 
	environment JSON NOT NULL, 
	last_seen_at FLOAT NOT NULL, 
	problem JSON, 
	display_name VARCHAR(64), 
	model_kind VARCHAR(160), 
	digest VARCHAR(32), 
	PRIMARY KEY (client_id)
);
INSERT INTO "clients" VALUES('ann','north',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null',NULL,NULL,'638a8decdb2774923a32d6fe918ec1b9');
INSERT INTO "clients" VALUES('bob','north',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null',NULL,NULL,'4150241b575b15436f48b8f8acaeb320');
INSERT INTO "clients" VALUES('cat','south',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null',NULL,NULL,'d2340f253f249e3b1b9b79fef7e58529');
INSERT INTO "clients" VALUES('zoe','south',12,'{"a": 5, "b": 3, "c": 4}','{"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}',1000.0,'null',NULL,NULL,'b3d08a3fa40c10fa6afad5b834b11441');
CREATE TABLE control_requests (
	request_id VARCHAR(128) NOT NULL, 
	request_hash VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	created_at FLOAT NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (request_id), 
	CONSTRAINT fk_control_requests_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "control_requests" VALUES('label','a3279d21e6dbb48163902f902e7a565b76a075dd7731736ab5691fe2df4fcf49','done-2d5febbb',1000.0,'de55b4dc5603fec982a8ff3699c8ae17');
CREATE TABLE evaluations (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	evaluation JSON NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id, round, client_id), 
	CONSTRAINT fk_evaluations_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "evaluations" VALUES('done-2d5febbb',1,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [8, 2, 9], "total": [10, 10, 10], "confusion": []}], "timings": {}}','4d942a1129169b2b6e8e8c9d32b5c892');
INSERT INTO "evaluations" VALUES('done-2d5febbb',1,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [7, 7, 10], "total": [10, 10, 10], "confusion": []}], "timings": {}}','9da373c27f20dee1755ce8879a36f506');
INSERT INTO "evaluations" VALUES('done-2d5febbb',1,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 4, 7], "total": [10, 10, 10], "confusion": []}], "timings": {}}','a839e990ad9fed6f1e931147b04b347f');
INSERT INTO "evaluations" VALUES('done-2d5febbb',1,'zoe','{"client_id": "zoe", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [5, 1, 6], "total": [10, 10, 10], "confusion": []}], "timings": {}}','ead6d2115e29fe69517ebb424904650a');
INSERT INTO "evaluations" VALUES('done-2d5febbb',2,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [5, 4, 0], "total": [10, 10, 10], "confusion": []}], "timings": {}}','952bbb592971f52ebc0708c3b3b76753');
INSERT INTO "evaluations" VALUES('done-2d5febbb',2,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [0, 3, 8], "total": [10, 10, 10], "confusion": []}], "timings": {}}','12b310c2f4d8340f148086374b28d052');
INSERT INTO "evaluations" VALUES('done-2d5febbb',2,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 7, 2], "total": [10, 10, 10], "confusion": []}], "timings": {}}','8aa5edb41d018b6d9cfb4e27e8d1fd18');
INSERT INTO "evaluations" VALUES('done-2d5febbb',2,'zoe','{"client_id": "zoe", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [8, 3, 0], "total": [10, 10, 10], "confusion": []}], "timings": {}}','cd1cddcd64b9014030b00c7fe3b4f4c6');
INSERT INTO "evaluations" VALUES('waits-b2a17117',1,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [8, 2, 9], "total": [10, 10, 10], "confusion": []}], "timings": {}}','d12a0930ffe153d4ecd2b20843ed15aa');
INSERT INTO "evaluations" VALUES('waits-b2a17117',1,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [7, 7, 10], "total": [10, 10, 10], "confusion": []}], "timings": {}}','a37096ec663bf5b51db89ec72eab8087');
INSERT INTO "evaluations" VALUES('waits-b2a17117',1,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 4, 7], "total": [10, 10, 10], "confusion": []}], "timings": {}}','050ffc227408d692da02d5fc7ce05fe2');
CREATE TABLE events (
	sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	time FLOAT NOT NULL, 
	type VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	data JSON NOT NULL, 
	digest VARCHAR(32)
);
INSERT INTO "events" VALUES(1,1000.0,'client_joined','',-1,'ann','{"domain": "north", "num_examples": 12}','5351a965a33da5e8426a87be8e551514');
INSERT INTO "events" VALUES(2,1000.0,'client_joined','',-1,'bob','{"domain": "north", "num_examples": 12}','2b044ef0df18d850d7ce9544933c2466');
INSERT INTO "events" VALUES(3,1000.0,'client_joined','',-1,'cat','{"domain": "south", "num_examples": 12}','b5ec7130d0bee8b827f30d8a3dc71827');
INSERT INTO "events" VALUES(4,1000.0,'client_joined','',-1,'zoe','{"domain": "south", "num_examples": 12}','2fd83500f7a5720db954ed1ac401ca22');
INSERT INTO "events" VALUES(5,1000.0,'run_created','deleted-d7c9e3a5',-1,'','{"config_hash": "f800ba63ec72ca2de554b0b4123a326ee5fb8775830de971fa8b7bc9efbb8a51"}','81b041c564ed28a047ec1bbaccce0a93');
INSERT INTO "events" VALUES(6,1000.0,'run_started','deleted-d7c9e3a5',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','4ce430433b0236cbd9a6c7544d30c572');
INSERT INTO "events" VALUES(7,1000.0,'round_opened','deleted-d7c9e3a5',0,'','{"cohort": ["ann"], "phase": "initialising"}','dbdec92750b25e707d5676857ae43413');
INSERT INTO "events" VALUES(8,1000.0,'update_committed','deleted-d7c9e3a5',0,'ann','{"num_examples": 0, "num_prototypes": 0}','09dfc219748b14a932b244e919b38c18');
INSERT INTO "events" VALUES(9,1000.0,'round_committed','deleted-d7c9e3a5',0,'','{}','ddc40ad33bb056081d1464e689f16f44');
INSERT INTO "events" VALUES(10,1000.0,'round_opened','deleted-d7c9e3a5',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','b02854d93d5135951dd84d1044c2580b');
INSERT INTO "events" VALUES(11,1000.0,'update_committed','deleted-d7c9e3a5',1,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.038598476949648}','95e7044f3fd6d04c59cb013af220ff14');
INSERT INTO "events" VALUES(12,1000.0,'update_committed','deleted-d7c9e3a5',1,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.654700032481969}','e2b95e92765447b56d04fe50bf1eac26');
INSERT INTO "events" VALUES(13,1000.0,'update_committed','deleted-d7c9e3a5',1,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.094054726096716}','4ee3de7b75e4aa756833c3d6aa0ecbee');
INSERT INTO "events" VALUES(14,1000.0,'update_committed','deleted-d7c9e3a5',1,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.762197147060303}','1923ecfba3e31407f475a9c4c14d360f');
INSERT INTO "events" VALUES(15,1000.0,'round_aggregating','deleted-d7c9e3a5',1,'','{}','3db1737aa8ee4abccee4696ac1e0f3d6');
INSERT INTO "events" VALUES(16,1000.0,'round_evaluating','deleted-d7c9e3a5',1,'','{}','8b3a1ac6233346c0affbe10189747c33');
INSERT INTO "events" VALUES(17,1000.0,'evaluation_reported','deleted-d7c9e3a5',1,'ann','{}','5368fe217265790c7bf084e8b2d36179');
INSERT INTO "events" VALUES(18,1000.0,'evaluation_reported','deleted-d7c9e3a5',1,'bob','{}','41385cff88c6e8652d672f5afa83a50c');
INSERT INTO "events" VALUES(19,1000.0,'evaluation_reported','deleted-d7c9e3a5',1,'cat','{}','e97bcef4007264dc83ae1505278d9532');
INSERT INTO "events" VALUES(20,1000.0,'evaluation_reported','deleted-d7c9e3a5',1,'zoe','{}','7c7bd26ea2613c45cba7c8d4bdc8bd51');
INSERT INTO "events" VALUES(21,1000.0,'round_committed','deleted-d7c9e3a5',1,'','{"metrics": {"accuracy": {"mean": 0.55, "north": 0.7166666666666667, "south": 0.38333333333333336, "worst": 0.38333333333333336}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 1.0}, "model_sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 5, "local": 24}, "prototypes_sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "round": 1}}','b7f6e62a7b672a1300b85efcbbb491ee');
INSERT INTO "events" VALUES(22,1000.0,'run_completed','deleted-d7c9e3a5',1,'','{}','a5918cbc99a34b5d207c4aa3bfc7d7d7');
INSERT INTO "events" VALUES(23,1000.0,'run_created','done-2d5febbb',-1,'','{"config_hash": "d053aa3fe1909c07f08541a60c99e427e0307ee53dd22ff305a5fa51e2e5b917"}','f10285f15e59c8690332123172bd98a7');
INSERT INTO "events" VALUES(24,1000.0,'run_started','done-2d5febbb',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','5391d88f3b898edd0cd06298fcba222f');
INSERT INTO "events" VALUES(25,1000.0,'round_opened','done-2d5febbb',0,'','{"cohort": ["ann"], "phase": "initialising"}','ca7af3b46e8eea3f1f23b01335f23610');
INSERT INTO "events" VALUES(26,1000.0,'update_committed','done-2d5febbb',0,'ann','{"num_examples": 0, "num_prototypes": 0}','d46847c0f6c4a4e881fca45ac9c13048');
INSERT INTO "events" VALUES(27,1000.0,'round_committed','done-2d5febbb',0,'','{}','2495457748dd772934210851a8573d69');
INSERT INTO "events" VALUES(28,1000.0,'round_opened','done-2d5febbb',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','1d754521116bef4464b164bd3144f671');
INSERT INTO "events" VALUES(29,1000.0,'update_committed','done-2d5febbb',1,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.038598476949648}','3490e5e22a86559f1391f1ae6195388a');
INSERT INTO "events" VALUES(30,1000.0,'update_committed','done-2d5febbb',1,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.654700032481969}','6bf46b0c52589a4d3def2673be729793');
INSERT INTO "events" VALUES(31,1000.0,'update_committed','done-2d5febbb',1,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.094054726096716}','f37ab3f4db8f6bcdbc3d78dbc169220d');
INSERT INTO "events" VALUES(32,1000.0,'update_committed','done-2d5febbb',1,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.762197147060303}','050f30c51f2dc9e6b595b57ae6e2c223');
INSERT INTO "events" VALUES(33,1000.0,'round_aggregating','done-2d5febbb',1,'','{}','8552a29b27c1ddf6a993697d90fb4153');
INSERT INTO "events" VALUES(34,1000.0,'round_evaluating','done-2d5febbb',1,'','{}','9e971fee29429e41bd12daa4aea6282d');
INSERT INTO "events" VALUES(35,1000.0,'evaluation_reported','done-2d5febbb',1,'ann','{}','559458ad11aded0a7e0d4d0f1c1c7b0d');
INSERT INTO "events" VALUES(36,1000.0,'evaluation_reported','done-2d5febbb',1,'bob','{}','36800b6d2a51473c1181a80c14f2c432');
INSERT INTO "events" VALUES(37,1000.0,'evaluation_reported','done-2d5febbb',1,'cat','{}','c7fccd8a58a7df20e67b899845aea8e2');
INSERT INTO "events" VALUES(38,1000.0,'evaluation_reported','done-2d5febbb',1,'zoe','{}','c064975f8337a88f874ca7c4b71f2187');
INSERT INTO "events" VALUES(39,1000.0,'round_committed','done-2d5febbb',1,'','{"metrics": {"accuracy": {"mean": 0.55, "north": 0.7166666666666667, "south": 0.38333333333333336, "worst": 0.38333333333333336}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 1.0}, "model_sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 5, "local": 24}, "prototypes_sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "round": 1}}','e613fd33a1552db8ba7690e02acc5759');
INSERT INTO "events" VALUES(40,1000.0,'round_opened','done-2d5febbb',2,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','0da73cb9f7665f8915d696189655c0ca');
INSERT INTO "events" VALUES(41,1000.0,'update_committed','done-2d5febbb',2,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 7.132301703629715}','ff88d03615057e6aa18ddb9e5ef19e8f');
INSERT INTO "events" VALUES(42,1000.0,'update_committed','done-2d5febbb',2,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.848415639191676}','f0a39ce04bac99e525909a1a6a5c02e1');
INSERT INTO "events" VALUES(43,1000.0,'update_committed','done-2d5febbb',2,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.100741295715641}','8de55325ae831bba4d092b2799fdaa75');
INSERT INTO "events" VALUES(44,1000.0,'update_committed','done-2d5febbb',2,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.621298055423181}','722a95c56d68cb74f86b11b7bcc16bd3');
INSERT INTO "events" VALUES(45,1000.0,'round_aggregating','done-2d5febbb',2,'','{}','e26e9ce8c3dec9780cba178d95a49684');
INSERT INTO "events" VALUES(46,1000.0,'round_evaluating','done-2d5febbb',2,'','{}','70655af5222df0639cf4498fc7be7f1e');
INSERT INTO "events" VALUES(47,1000.0,'evaluation_reported','done-2d5febbb',2,'ann','{}','6e1e419ccf31192211c790ffc2028dfe');
INSERT INTO "events" VALUES(48,1000.0,'evaluation_reported','done-2d5febbb',2,'bob','{}','fab17ad36d963d06c7dd928e4284663b');
INSERT INTO "events" VALUES(49,1000.0,'evaluation_reported','done-2d5febbb',2,'cat','{}','cf387cbd7a067a929aeb196203c64700');
INSERT INTO "events" VALUES(50,1000.0,'evaluation_reported','done-2d5febbb',2,'zoe','{}','d13e8308a0b6775f61502761b2b6aa0c');
INSERT INTO "events" VALUES(51,1000.0,'round_committed','done-2d5febbb',2,'','{"metrics": {"accuracy": {"mean": 0.3333333333333333, "north": 0.3333333333333333, "south": 0.3333333333333333, "worst": 0.3333333333333333}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 0.5}, "model_sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 8, "local": 24}, "prototypes_sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "round": 2}}','060c2c62e9a4adaf21215d9a91dddb6f');
INSERT INTO "events" VALUES(52,1000.0,'run_completed','done-2d5febbb',2,'','{}','dfd4d86b192f5aeb256be0d24b0558ae');
INSERT INTO "events" VALUES(53,1000.0,'run_labelled','done-2d5febbb',-1,'','{"tags": ["kept"], "is_archived": false}','d1f421cbff81e793a7082c161225d86f');
INSERT INTO "events" VALUES(54,1000.0,'run_deleted','deleted-d7c9e3a5',-1,'','{"name": "deleted", "status": "completed"}','bf3221aaa80db1c16bdccb364b8ab8eb');
INSERT INTO "events" VALUES(55,1000.0,'run_created','waits-b2a17117',-1,'','{"config_hash": "fc0a1cc1f119d069225a38bd23f79eff044e4f2510099d7bb6b17663b5564486"}','040398ffa3c5b7a96f5c304e38f4fdb5');
INSERT INTO "events" VALUES(56,1000.0,'run_started','waits-b2a17117',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','79849b7395a4a84518dbb6bffe7e6430');
INSERT INTO "events" VALUES(57,1000.0,'round_opened','waits-b2a17117',0,'','{"cohort": ["ann"], "phase": "initialising"}','c8f3ec7a2de245fdbffd12b9aa225b39');
INSERT INTO "events" VALUES(58,1000.0,'update_committed','waits-b2a17117',0,'ann','{"num_examples": 0, "num_prototypes": 0}','9d6f1f39c6bd74965cc6ab7c95fc7121');
INSERT INTO "events" VALUES(59,1000.0,'round_committed','waits-b2a17117',0,'','{}','e1272e3256be89e532c6073a64dde9a0');
INSERT INTO "events" VALUES(60,1000.0,'round_opened','waits-b2a17117',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','a24d9739dd05c63250d52e6fdaba228e');
INSERT INTO "events" VALUES(61,1000.0,'update_committed','waits-b2a17117',1,'bob','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.038598476949648}','e8ea0094150701ceae7f690d2baa7518');
INSERT INTO "events" VALUES(62,1000.0,'update_committed','waits-b2a17117',1,'cat','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.654700032481969}','2e61368d0d4709b0554f5259392d83cd');
INSERT INTO "events" VALUES(63,1000.0,'update_committed','waits-b2a17117',1,'zoe','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.094054726096716}','3e0ac3f5417de0b78c672e2b5a6318b2');
INSERT INTO "events" VALUES(64,1000.0,'update_committed','waits-b2a17117',1,'ann','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.762197147060303}','1911ac6550714a63a374adbf9da4eafc');
INSERT INTO "events" VALUES(65,1000.0,'round_aggregating','waits-b2a17117',1,'','{}','434e36ac21ae1a44a5454c6adb1fcbac');
INSERT INTO "events" VALUES(66,1000.0,'round_evaluating','waits-b2a17117',1,'','{}','cce8d116aac33e9bbc62a9a369d53aae');
INSERT INTO "events" VALUES(67,1000.0,'evaluation_reported','waits-b2a17117',1,'ann','{}','9542eae0fa21ae53265df233b21ed9a5');
INSERT INTO "events" VALUES(68,1000.0,'evaluation_reported','waits-b2a17117',1,'bob','{}','a92f478bdfe8b00074969ee13df74a55');
INSERT INTO "events" VALUES(69,1000.0,'evaluation_reported','waits-b2a17117',1,'cat','{}','e1ccc3fea6b96f8a775c24cb66b363e5');
INSERT INTO "events" VALUES(70,1000.0,'run_created','pending-26f8ed77',-1,'','{"config_hash": "a064a5357c1c19062be2bbb9694726ab81c0475a423b6cb489750844f9ddbf3a"}','8d58fc2320efc7a785f7eeda9532f418');
CREATE TABLE invitations (
	invitation_id VARCHAR(32) NOT NULL, 
	secret_sha256 VARCHAR(64) NOT NULL, 
	role VARCHAR(16) NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	domain VARCHAR(64) NOT NULL, 
	replaces BOOLEAN NOT NULL, 
	created_at FLOAT NOT NULL, 
	expires_at FLOAT NOT NULL, 
	spent_at FLOAT, 
	serial VARCHAR(40), 
	digest VARCHAR(32), 
	PRIMARY KEY (invitation_id)
);
INSERT INTO "invitations" VALUES('i1','abababababababababababababababababababababababababababababababab','client','north','röntgen',1,10.1,20.25,NULL,NULL,'53d1f8393c1b00b5cd84a4b2e72f385f');
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
	prototype_counts JSON, 
	asked_again JSON, 
	start JSON, 
	server_state JSON, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id, number), 
	CONSTRAINT fk_rounds_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "rounds" VALUES('done-2d5febbb',0,'committed','["ann"]','{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"initialising": 1000.0, "committed": 1000.0}',NULL,NULL,NULL,NULL,NULL,'dd52026e27d57b3fefa3c6e3c3ddc4ed');
INSERT INTO "rounds" VALUES('done-2d5febbb',1,'committed','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "size_bytes": 484}','{"accuracy":{"mean":0.55,"north":0.7166666666666667,"south":0.38333333333333336,"worst":0.38333333333333336},"cohort":["ann","bob","cat","zoe"],"loss":{"ce":1.0},"model_sha256":"422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5","num_examples":48,"num_excluded":0,"prototypes":{"global":5,"local":24},"prototypes_sha256":"558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8","round":1}','{"bytes_received":3552,"clients":{"ann":{"train_seconds":0.01},"bob":{"train_seconds":0.01},"cat":{"train_seconds":0.01},"zoe":{"train_seconds":0.01}},"round":1,"seconds":{"aggregating":0.0,"collecting":0.0,"evaluating":0.0,"total":0.0}}','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0, "committed": 1000.0}',NULL,'{"by_class": [2, 1, 2], "weights": [0.375, 0.550000011920929, 1.0]}',NULL,NULL,NULL,'0b64c2e6b3ebbd6e813262efa5f8be25');
INSERT INTO "rounds" VALUES('done-2d5febbb',2,'committed','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "size_bytes": 360}','{"role": "global_cluster", "sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "size_bytes": 616}','{"accuracy":{"mean":0.3333333333333333,"north":0.3333333333333333,"south":0.3333333333333333,"worst":0.3333333333333333},"cohort":["ann","bob","cat","zoe"],"loss":{"ce":0.5},"model_sha256":"c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86","num_examples":48,"num_excluded":0,"prototypes":{"global":8,"local":24},"prototypes_sha256":"c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12","round":2}','{"bytes_received":3552,"clients":{"ann":{"train_seconds":0.01},"bob":{"train_seconds":0.01},"cat":{"train_seconds":0.01},"zoe":{"train_seconds":0.01}},"round":2,"seconds":{"aggregating":0.0,"collecting":0.0,"evaluating":0.0,"total":0.0}}','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0, "committed": 1000.0}',NULL,'{"by_class": [3, 3, 2], "weights": [0.25, 0.29999999701976776, 0.75]}',NULL,NULL,NULL,'3418391f0e3ad154ef6483eb7e4cf470');
INSERT INTO "rounds" VALUES('waits-b2a17117',0,'committed','["ann"]','{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"initialising": 1000.0, "committed": 1000.0}',NULL,NULL,NULL,NULL,NULL,'b94f1a153ae750f3c3500cea30e955b7');
INSERT INTO "rounds" VALUES('waits-b2a17117',1,'evaluating','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0}',NULL,'{"by_class": [0, 0, 0], "weights": null}',NULL,'{"role": "model", "sha256": "312715e4e3810f5279cb20eb8fe471415cd69a476e958c9176057ebe71b7952c", "size_bytes": 360}','{"h": {"role": "h", "sha256": "0a9e5c38140f8eac7f3c37c5946a43f0bff7faa6b2ca0a85dd58e90e0aa9f0ab", "size_bytes": 288}}','d18fd77e3516b52816ed9db52237d7e3');
CREATE TABLE run_labels (
	run_id VARCHAR(64) NOT NULL, 
	tags JSON NOT NULL, 
	notes TEXT NOT NULL, 
	is_archived BOOLEAN NOT NULL, 
	deleted_at FLOAT, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id), 
	CONSTRAINT fk_run_labels_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "run_labels" VALUES('done-2d5febbb','["kept"]','für später',0,NULL,'c5eeab5b924d33d1070079e703dbc46e');
INSERT INTO "run_labels" VALUES('deleted-d7c9e3a5','[]','',0,1000.0,'b792d58595733414a7e21d5629ae0cd0');
CREATE TABLE run_tags (
	tag VARCHAR(40) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (tag, run_id), 
	CONSTRAINT fk_run_tags_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "run_tags" VALUES('kept','done-2d5febbb');
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
	reason_record JSON, 
	start JSON, 
	server_state JSON, 
	admitted_examples JSON, 
	retired JSON, 
	num_admissions INTEGER, 
	without_data JSON, 
	stage_began JSON, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id), 
	CONSTRAINT uq_runs_request_id UNIQUE (request_id)
);
INSERT INTO "runs" VALUES('deleted-d7c9e3a5','deleted','f800ba63ec72ca2de554b0b4123a326ee5fb8775830de971fa8b7bc9efbb8a51','deleted','completed','fedplcc','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_style_norm":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false},"membership":{},"method":{"alpha":0.5,"average_decay":0.9,"averaging":"weighted","corr_margin":1.0,"corr_over":"class","global_average":"none","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"proto_pass":"after_training","proto_staleness":0,"proto_window":1,"ramp_rounds":0,"tau":0.07,"topk_rank":"weighted","unit_weights":false,"weights_by":"samples","weights_in":"sum","weights_over":"class"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedplcc","min_clients":null,"name":"deleted","patience":null,"rounds":1,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','f800ba63ec72ca2de554b0b4123a326ee5fb8775830de971fa8b7bc9efbb8a51',1,0,'["ann", "bob", "cat", "zoe"]',1,'{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "size_bytes": 484}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'f46a92f9d0fd6eeedf9b225f2fffaee3');
INSERT INTO "runs" VALUES('done-2d5febbb','done','d053aa3fe1909c07f08541a60c99e427e0307ee53dd22ff305a5fa51e2e5b917','done','completed','fedplcc','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_style_norm":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false},"membership":{},"method":{"alpha":0.5,"average_decay":0.9,"averaging":"weighted","corr_margin":1.0,"corr_over":"class","global_average":"none","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"proto_pass":"after_training","proto_staleness":0,"proto_window":1,"ramp_rounds":0,"tau":0.07,"topk_rank":"weighted","unit_weights":false,"weights_by":"samples","weights_in":"sum","weights_over":"class"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedplcc","min_clients":null,"name":"done","patience":null,"rounds":2,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','d053aa3fe1909c07f08541a60c99e427e0307ee53dd22ff305a5fa51e2e5b917',2,0,'["ann", "bob", "cat", "zoe"]',2,'{"role": "model", "sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "size_bytes": 360}','{"role": "global_cluster", "sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "size_bytes": 616}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'26459b97361b4076c2ca945e121f085b');
INSERT INTO "runs" VALUES('waits-b2a17117','waits','fc0a1cc1f119d069225a38bd23f79eff044e4f2510099d7bb6b17663b5564486','waits','running','feddyn','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_style_norm":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false},"membership":{},"method":{"adaptive":true,"alpha":0.01,"average_decay":0.9,"averaging":"weighted","evaluate":"mean","global_average":"none"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"feddyn","min_clients":null,"name":"waits","patience":null,"rounds":3,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','fc0a1cc1f119d069225a38bd23f79eff044e4f2510099d7bb6b17663b5564486',3,0,'["ann", "bob", "cat", "zoe"]',1,'{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,'{"ann": 12, "bob": 12, "cat": 12, "zoe": 12}',NULL,NULL,NULL,NULL,'1e95c5c7951abe857fcae5bef3a8f16b');
INSERT INTO "runs" VALUES('pending-26f8ed77','pending','a064a5357c1c19062be2bbb9694726ab81c0475a423b6cb489750844f9ddbf3a','pending','pending','fedavg','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_style_norm":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false},"membership":{},"method":{"average_decay":0.9,"averaging":"weighted","global_average":"none"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","nobody"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedavg","min_clients":null,"name":"pending","patience":null,"rounds":2,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','a064a5357c1c19062be2bbb9694726ab81c0475a423b6cb489750844f9ddbf3a',2,0,'["ann", "nobody"]',-1,'null','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'',1000.0,1000.0,NULL,NULL,'{"kind": "waits_for_clients"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'11d658c6e5e34ef8c492d4b0669db88c');
CREATE TABLE updates (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	commit_order INTEGER NOT NULL, 
	"update" JSON NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id, round, client_id), 
	CONSTRAINT fk_updates_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "updates" VALUES('done-2d5febbb',0,'ann',6,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {"feature_dim": [6], "parameters": [1, 2], "head": [0, 2], "batch_norm": []}, "metadata": {}}, "num_examples": 0, "num_excluded": 0, "class_counts": [], "losses": {}, "timings": {}, "num_prototypes": 0, "norm": null}','324e9de31dd24b5cbf90258daee3497d');
INSERT INTO "updates" VALUES('done-2d5febbb',1,'bob',7,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.038598476949648}','9445843e5c83f740e7361d01be71b008');
INSERT INTO "updates" VALUES('done-2d5febbb',1,'cat',8,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "fce70984b19f4707fc9a38ae8bb452ece5978ab129955df101a0e6bebc87d394", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.654700032481969}','3d55d1872c2afaadf0da6e820f5ecd42');
INSERT INTO "updates" VALUES('done-2d5febbb',1,'zoe',9,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "bdffc699c8acff92c18fc793fe75132b793ece2abe663de4ecc3724d3ca57c5f", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.094054726096716}','93dfd7d49d03217873ae816eaa7d2667');
INSERT INTO "updates" VALUES('done-2d5febbb',1,'ann',10,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.762197147060303}','773a60c9e53d1807a4fc571bf3ac1797');
INSERT INTO "updates" VALUES('done-2d5febbb',2,'ann',11,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "104f5a451587fad048b9789f687a06b04646fed08842754438376849e1899c48", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "7de44ce0193590e2ae86a40b3532e159afcf621f3ee5688ab7988f15cb090883", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 7.132301703629715}','d57249baad481e14036bdb65fc875df0');
INSERT INTO "updates" VALUES('done-2d5febbb',2,'bob',12,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "d3ccd3c9f851d90aa66e94fc56aa844646fe7abbd917a2f94b0ce554f22fa81f", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "57f9a0699383e49110b95d419ed6a34f7d2e753fc084345de638a6b865db0d3e", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.848415639191676}','ba157458a4e26a72bac046ee47aa0f1a');
INSERT INTO "updates" VALUES('done-2d5febbb',2,'cat',13,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "8a70e56026e11cdc4861d4c9ed352d50b260a586e2bb9db4ce561794dde9df21", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "0bdf7dec364269b8d6f7479c2e6e2839cdb3fd99e2b41e8a275ec5c75be91d32", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.100741295715641}','873d91ac565371378227945848fe359c');
INSERT INTO "updates" VALUES('done-2d5febbb',2,'zoe',14,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "8e6ba1239002607171747da0a220ec3f53077e5d68ced95c820c53beeb043a2e", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "34f2424d6460a224024442671eb45e3c63c6dca5bab7a4c21ba65c96eec427cf", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.621298055423181}','bfae1824cee890ef0efaa45d31aaff3a');
INSERT INTO "updates" VALUES('waits-b2a17117',0,'ann',15,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {"feature_dim": [6], "parameters": [1, 2], "head": [0, 2], "batch_norm": []}, "metadata": {}}, "num_examples": 0, "num_excluded": 0, "class_counts": [], "losses": {}, "timings": {}, "num_prototypes": 0, "norm": null}','d54a21f36edd314c30ffb57fe520ff96');
INSERT INTO "updates" VALUES('waits-b2a17117',1,'bob',16,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.038598476949648}','6b303735bb94d3fbf661bd9d48ccf296');
INSERT INTO "updates" VALUES('waits-b2a17117',1,'cat',17,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.654700032481969}','90ff2b00d9f71d615d35629259afbfda');
INSERT INTO "updates" VALUES('waits-b2a17117',1,'zoe',18,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.094054726096716}','31b5b01808e99937ce18e5de1c3cf4eb');
INSERT INTO "updates" VALUES('waits-b2a17117',1,'ann',19,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.762197147060303}','1dc583877881ab27ae6b5ed398fbd046');
CREATE TABLE writer (
	state VARCHAR(32) NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	transactions INTEGER NOT NULL, 
	PRIMARY KEY (state)
);
INSERT INTO "writer" VALUES('4e79846b0ba61590f433afc79cfc536e','c6ff312f8fce2016cabf0fb5a784a5da',52);
CREATE INDEX runs_by_age ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status);
CREATE INDEX runs_in_lists ON runs (status, method, name, created_at, updated_at, run_id);
CREATE INDEX events_by_run ON events (run_id, sequence);
CREATE INDEX certificates_by_name ON certificates (role, name);
CREATE INDEX run_tags_by_run ON run_tags (run_id);
CREATE INDEX updates_by_client ON updates (client_id, commit_order);
CREATE INDEX client_blobs_by_blob ON client_blobs (sha256);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('events',70);
COMMIT;
