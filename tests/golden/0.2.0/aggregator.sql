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
INSERT INTO "control_requests" VALUES('label','82f8211a136085b4e68c7e2e54022c46d402a926172f13342483e52db35beb1b','done-92dc9867',1000.0,'8268661f760f672f3b459f431ce87778');
CREATE TABLE evaluations (
	run_id VARCHAR(64) NOT NULL, 
	round INTEGER NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	evaluation JSON NOT NULL, 
	digest VARCHAR(32), 
	PRIMARY KEY (run_id, round, client_id), 
	CONSTRAINT fk_evaluations_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "evaluations" VALUES('done-92dc9867',1,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [8, 2, 9], "total": [10, 10, 10], "confusion": []}], "timings": {}}','a30404d3ad637306aac512941ca36a0f');
INSERT INTO "evaluations" VALUES('done-92dc9867',1,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [7, 7, 10], "total": [10, 10, 10], "confusion": []}], "timings": {}}','c676f1be479ee779ff6accf9ef855e8d');
INSERT INTO "evaluations" VALUES('done-92dc9867',1,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 4, 7], "total": [10, 10, 10], "confusion": []}], "timings": {}}','6a785f4376517c8e2ceb2d454cc414b7');
INSERT INTO "evaluations" VALUES('done-92dc9867',1,'zoe','{"client_id": "zoe", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [5, 1, 6], "total": [10, 10, 10], "confusion": []}], "timings": {}}','d46674b6396cd631b58a1121272b63a8');
INSERT INTO "evaluations" VALUES('done-92dc9867',2,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [5, 4, 0], "total": [10, 10, 10], "confusion": []}], "timings": {}}','44ef9a84c9249a35a3752171a3694421');
INSERT INTO "evaluations" VALUES('done-92dc9867',2,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [0, 3, 8], "total": [10, 10, 10], "confusion": []}], "timings": {}}','97981f00a078146eb58ea9970e5e3a8f');
INSERT INTO "evaluations" VALUES('done-92dc9867',2,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 7, 2], "total": [10, 10, 10], "confusion": []}], "timings": {}}','149f7b8ab7d4ddfb1422e8dd438a5c52');
INSERT INTO "evaluations" VALUES('done-92dc9867',2,'zoe','{"client_id": "zoe", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [8, 3, 0], "total": [10, 10, 10], "confusion": []}], "timings": {}}','7c164a26fc9752dbd4b6cd9ddec2ae83');
INSERT INTO "evaluations" VALUES('waits-d60276ca',1,'ann','{"client_id": "ann", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [8, 2, 9], "total": [10, 10, 10], "confusion": []}], "timings": {}}','91458d7c0fcefe420e4873f16d920ac4');
INSERT INTO "evaluations" VALUES('waits-d60276ca',1,'bob','{"client_id": "bob", "domain": "north", "counts": [{"set_name": "test", "model": "global", "correct": [7, 7, 10], "total": [10, 10, 10], "confusion": []}], "timings": {}}','62956f1c57f9f28c26cabcbca60cf468');
INSERT INTO "evaluations" VALUES('waits-d60276ca',1,'cat','{"client_id": "cat", "domain": "south", "counts": [{"set_name": "test", "model": "global", "correct": [0, 4, 7], "total": [10, 10, 10], "confusion": []}], "timings": {}}','57db4612e3a6126526035384080f58d4');
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
INSERT INTO "events" VALUES(5,1000.0,'run_created','deleted-ee61375e',-1,'','{"config_hash": "d6f76155badbfb4543c0d510a78e110e2fd5d4a06b4a93fb60854843da9e7b73"}','3ade1c74950ff28a93392d7de53911c7');
INSERT INTO "events" VALUES(6,1000.0,'run_started','deleted-ee61375e',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','77379268e94605637c8e84ff3772a4f1');
INSERT INTO "events" VALUES(7,1000.0,'round_opened','deleted-ee61375e',0,'','{"cohort": ["ann"], "phase": "initialising"}','1027831723badf2d7bc1caf04c81f552');
INSERT INTO "events" VALUES(8,1000.0,'update_committed','deleted-ee61375e',0,'ann','{"num_examples": 0, "num_prototypes": 0}','573bbb2cdfc468bee6bac68ef498ea9d');
INSERT INTO "events" VALUES(9,1000.0,'round_committed','deleted-ee61375e',0,'','{}','3ba4e564f41e5538f997d6de0113f7a3');
INSERT INTO "events" VALUES(10,1000.0,'round_opened','deleted-ee61375e',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','951bda8c737cbf34965f2837ae8517c2');
INSERT INTO "events" VALUES(11,1000.0,'update_committed','deleted-ee61375e',1,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.038598476949648}','2dd3dc23e742fb6a0f59061f31ec3785');
INSERT INTO "events" VALUES(12,1000.0,'update_committed','deleted-ee61375e',1,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.654700032481969}','379cb486e94125f355a905a5f8c1e382');
INSERT INTO "events" VALUES(13,1000.0,'update_committed','deleted-ee61375e',1,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.094054726096716}','2a3bb27dc5ff727622b7d638e74267be');
INSERT INTO "events" VALUES(14,1000.0,'update_committed','deleted-ee61375e',1,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.762197147060303}','723b9cf589af9df261e532c77c4b03b4');
INSERT INTO "events" VALUES(15,1000.0,'round_aggregating','deleted-ee61375e',1,'','{}','eff99dd9a280ae940d8865792236d3ae');
INSERT INTO "events" VALUES(16,1000.0,'round_evaluating','deleted-ee61375e',1,'','{}','0b6f9e669739cdc4bae9c10cf340dfc1');
INSERT INTO "events" VALUES(17,1000.0,'evaluation_reported','deleted-ee61375e',1,'ann','{}','3b1d571a4065b18aca31f4cbbf354233');
INSERT INTO "events" VALUES(18,1000.0,'evaluation_reported','deleted-ee61375e',1,'bob','{}','26a0cbe2f2c592400ad6f7ccefddad38');
INSERT INTO "events" VALUES(19,1000.0,'evaluation_reported','deleted-ee61375e',1,'cat','{}','0dea936484e95bdfd47a355e6c682b65');
INSERT INTO "events" VALUES(20,1000.0,'evaluation_reported','deleted-ee61375e',1,'zoe','{}','b70f78fda3692a203310d6154986f8f8');
INSERT INTO "events" VALUES(21,1000.0,'round_committed','deleted-ee61375e',1,'','{"metrics": {"accuracy": {"mean": 0.55, "north": 0.7166666666666667, "south": 0.38333333333333336, "worst": 0.38333333333333336}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 1.0}, "model_sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 5, "local": 24}, "prototypes_sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "round": 1}}','2cae390397dce58a0d83444800d27b93');
INSERT INTO "events" VALUES(22,1000.0,'run_completed','deleted-ee61375e',1,'','{}','3ac11cba0b87d6f3b8ac3d1964a2cafb');
INSERT INTO "events" VALUES(23,1000.0,'run_created','done-92dc9867',-1,'','{"config_hash": "f9720183ab839f002a741dc5bab865400763047f6e1bbdf82cba76abb45c4c58"}','1e1bdf0b1a0a25261d49f6660d195727');
INSERT INTO "events" VALUES(24,1000.0,'run_started','done-92dc9867',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','3e8be8dc8aeda56dd5ca6dbfada3908e');
INSERT INTO "events" VALUES(25,1000.0,'round_opened','done-92dc9867',0,'','{"cohort": ["ann"], "phase": "initialising"}','0ee4e68f5b08a6afbb8821d2ff4a58c1');
INSERT INTO "events" VALUES(26,1000.0,'update_committed','done-92dc9867',0,'ann','{"num_examples": 0, "num_prototypes": 0}','833f75389481658dadf4ee43a0c3bee1');
INSERT INTO "events" VALUES(27,1000.0,'round_committed','done-92dc9867',0,'','{}','fc9b99cbf1d5940adbf1f67bee962c0d');
INSERT INTO "events" VALUES(28,1000.0,'round_opened','done-92dc9867',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','59e95045b981a10f13afcd855d245f90');
INSERT INTO "events" VALUES(29,1000.0,'update_committed','done-92dc9867',1,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.038598476949648}','5bb5166232cdb16582a58a5b6d9411c0');
INSERT INTO "events" VALUES(30,1000.0,'update_committed','done-92dc9867',1,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.654700032481969}','a49764c91e47785d745dd14e941e50c4');
INSERT INTO "events" VALUES(31,1000.0,'update_committed','done-92dc9867',1,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.094054726096716}','2139824c58bfc4ba7b3618587813a319');
INSERT INTO "events" VALUES(32,1000.0,'update_committed','done-92dc9867',1,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.762197147060303}','9696d475174f0583cb2402b9d168daf3');
INSERT INTO "events" VALUES(33,1000.0,'round_aggregating','done-92dc9867',1,'','{}','1b006d9bcd5357def062f8b8e6b10429');
INSERT INTO "events" VALUES(34,1000.0,'round_evaluating','done-92dc9867',1,'','{}','bf28f261d9b911eef4401ca5982af29a');
INSERT INTO "events" VALUES(35,1000.0,'evaluation_reported','done-92dc9867',1,'ann','{}','4a1fa289acfe3a77ee3ec4a495ffb929');
INSERT INTO "events" VALUES(36,1000.0,'evaluation_reported','done-92dc9867',1,'bob','{}','1a827702c1ccf23dcf6ba07163220c58');
INSERT INTO "events" VALUES(37,1000.0,'evaluation_reported','done-92dc9867',1,'cat','{}','02775b75fb319911902924a5997d8fbf');
INSERT INTO "events" VALUES(38,1000.0,'evaluation_reported','done-92dc9867',1,'zoe','{}','ee6e8bba8b00e4c22ac0ac560c55a0df');
INSERT INTO "events" VALUES(39,1000.0,'round_committed','done-92dc9867',1,'','{"metrics": {"accuracy": {"mean": 0.55, "north": 0.7166666666666667, "south": 0.38333333333333336, "worst": 0.38333333333333336}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 1.0}, "model_sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 5, "local": 24}, "prototypes_sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "round": 1}}','ef9adb96a7fd4e1eba07dc614f47160d');
INSERT INTO "events" VALUES(40,1000.0,'round_opened','done-92dc9867',2,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','835e4a1fc7eb7aebac207b5013c19dc0');
INSERT INTO "events" VALUES(41,1000.0,'update_committed','done-92dc9867',2,'ann','{"num_examples": 12, "num_prototypes": 6, "update_norm": 7.132301703629715}','e2fd467ce634ad29235d87fc0c788792');
INSERT INTO "events" VALUES(42,1000.0,'update_committed','done-92dc9867',2,'bob','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.848415639191676}','403204488f5e681e6cd57ef8e4a7c0c1');
INSERT INTO "events" VALUES(43,1000.0,'update_committed','done-92dc9867',2,'cat','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.100741295715641}','149bff164df39f1919f174d537340179');
INSERT INTO "events" VALUES(44,1000.0,'update_committed','done-92dc9867',2,'zoe','{"num_examples": 12, "num_prototypes": 6, "update_norm": 6.621298055423181}','f1d6b536187e9db21c797130df782610');
INSERT INTO "events" VALUES(45,1000.0,'round_aggregating','done-92dc9867',2,'','{}','7378cd6cf7997277b787ab2302b1ffb2');
INSERT INTO "events" VALUES(46,1000.0,'round_evaluating','done-92dc9867',2,'','{}','27c1ca5ea2a8014b51628780c5913d0f');
INSERT INTO "events" VALUES(47,1000.0,'evaluation_reported','done-92dc9867',2,'ann','{}','013370193b17b36b37a3866bd7c4c806');
INSERT INTO "events" VALUES(48,1000.0,'evaluation_reported','done-92dc9867',2,'bob','{}','9526ba66b20a4fc1109399dc9b5c543e');
INSERT INTO "events" VALUES(49,1000.0,'evaluation_reported','done-92dc9867',2,'cat','{}','a963d13c2d5bd7e8e1ba8f5de0b6380e');
INSERT INTO "events" VALUES(50,1000.0,'evaluation_reported','done-92dc9867',2,'zoe','{}','a4328585900ea8e364054b6973c17945');
INSERT INTO "events" VALUES(51,1000.0,'round_committed','done-92dc9867',2,'','{"metrics": {"accuracy": {"mean": 0.3333333333333333, "north": 0.3333333333333333, "south": 0.3333333333333333, "worst": 0.3333333333333333}, "cohort": ["ann", "bob", "cat", "zoe"], "loss": {"ce": 0.5}, "model_sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "num_examples": 48, "num_excluded": 0, "prototypes": {"global": 8, "local": 24}, "prototypes_sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "round": 2}}','5281d939bcf674ce24a104ba5f24504c');
INSERT INTO "events" VALUES(52,1000.0,'run_completed','done-92dc9867',2,'','{}','5cc32e916d1a6570b4dd06d725208f35');
INSERT INTO "events" VALUES(53,1000.0,'run_labelled','done-92dc9867',-1,'','{"tags": ["kept"], "is_archived": false}','2ec12ab49d744a2101039bbca05428a9');
INSERT INTO "events" VALUES(54,1000.0,'run_deleted','deleted-ee61375e',-1,'','{"name": "deleted", "status": "completed"}','05c2701add823b0e72cf26cae5a0a739');
INSERT INTO "events" VALUES(55,1000.0,'run_created','waits-d60276ca',-1,'','{"config_hash": "082156204b240c15024f8f7bf7c35df6eba0edbcf9b0389455971054cb192474"}','7131448a2fd6f378e04407004717ed85');
INSERT INTO "events" VALUES(56,1000.0,'run_started','waits-d60276ca',-1,'','{"clients": {"ann": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "bob": {"domain": "north", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "cat": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}, "zoe": {"domain": "south", "num_examples": 12, "class_counts": {"a": 5, "b": 3, "c": 4}, "environment": {"packages": {"numpy": "2.4.6"}, "cpu": "any", "device": "cpu", "platform": "any"}}}}','8d77ed1f1c5a0b5cc19b266f023cfe48');
INSERT INTO "events" VALUES(57,1000.0,'round_opened','waits-d60276ca',0,'','{"cohort": ["ann"], "phase": "initialising"}','5a02c1956ee2f47b353a0935c5ff0da5');
INSERT INTO "events" VALUES(58,1000.0,'update_committed','waits-d60276ca',0,'ann','{"num_examples": 0, "num_prototypes": 0}','3632bcc1799b6e32737eecf85e9ebee4');
INSERT INTO "events" VALUES(59,1000.0,'round_committed','waits-d60276ca',0,'','{}','f312900932e7d66a399a3e10b4827903');
INSERT INTO "events" VALUES(60,1000.0,'round_opened','waits-d60276ca',1,'','{"cohort": ["ann", "bob", "cat", "zoe"], "phase": "collecting"}','6219761ee1694a533fd6da7830e09b06');
INSERT INTO "events" VALUES(61,1000.0,'update_committed','waits-d60276ca',1,'bob','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.038598476949648}','6f5c0e9fd7907be6ffc1df2465a90fc7');
INSERT INTO "events" VALUES(62,1000.0,'update_committed','waits-d60276ca',1,'cat','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.654700032481969}','e6ee14af710b22427cc5818de6b0dd1f');
INSERT INTO "events" VALUES(63,1000.0,'update_committed','waits-d60276ca',1,'zoe','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.094054726096716}','235f81e03da5375ad4ec8fbcadba7806');
INSERT INTO "events" VALUES(64,1000.0,'update_committed','waits-d60276ca',1,'ann','{"num_examples": 12, "num_prototypes": 0, "update_norm": 6.762197147060303}','e400ad987dfe65fbfd41646ec007d5da');
INSERT INTO "events" VALUES(65,1000.0,'round_aggregating','waits-d60276ca',1,'','{}','5c02020cbccb4b4802900bc3229fe18f');
INSERT INTO "events" VALUES(66,1000.0,'round_evaluating','waits-d60276ca',1,'','{}','a00e9b4cb9b7216efd19a914a0617d33');
INSERT INTO "events" VALUES(67,1000.0,'evaluation_reported','waits-d60276ca',1,'ann','{}','efcf205402537efe6fd70242d4f83bb0');
INSERT INTO "events" VALUES(68,1000.0,'evaluation_reported','waits-d60276ca',1,'bob','{}','7ca08ec810856626129d0c4fd9bebfd4');
INSERT INTO "events" VALUES(69,1000.0,'evaluation_reported','waits-d60276ca',1,'cat','{}','d834bb778d37c2f83b4059edbd7f872d');
INSERT INTO "events" VALUES(70,1000.0,'run_created','pending-f324ac7d',-1,'','{"config_hash": "6746c60cb936ab42723275062fc249fb2203472ac703196ac08c6f1e416c533b"}','b781be694a24e8d6638706b6ecf34bf8');
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
INSERT INTO "rounds" VALUES('done-92dc9867',0,'committed','["ann"]','{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"initialising": 1000.0, "committed": 1000.0}',NULL,NULL,NULL,NULL,NULL,'fc5201209802b90dec2698263c5e2a44');
INSERT INTO "rounds" VALUES('done-92dc9867',1,'committed','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "size_bytes": 484}','{"accuracy":{"mean":0.55,"north":0.7166666666666667,"south":0.38333333333333336,"worst":0.38333333333333336},"cohort":["ann","bob","cat","zoe"],"loss":{"ce":1.0},"model_sha256":"422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5","num_examples":48,"num_excluded":0,"prototypes":{"global":5,"local":24},"prototypes_sha256":"558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8","round":1}','{"bytes_received":3552,"clients":{"ann":{"train_seconds":0.01},"bob":{"train_seconds":0.01},"cat":{"train_seconds":0.01},"zoe":{"train_seconds":0.01}},"round":1,"seconds":{"aggregating":0.0,"collecting":0.0,"evaluating":0.0,"total":0.0}}','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0, "committed": 1000.0}',NULL,'{"by_class": [2, 1, 2], "weights": [0.375, 0.550000011920929, 1.0]}',NULL,NULL,NULL,'247730e518a70a858ca51cb9ba81c5cf');
INSERT INTO "rounds" VALUES('done-92dc9867',2,'committed','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "size_bytes": 360}','{"role": "global_cluster", "sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "size_bytes": 616}','{"accuracy":{"mean":0.3333333333333333,"north":0.3333333333333333,"south":0.3333333333333333,"worst":0.3333333333333333},"cohort":["ann","bob","cat","zoe"],"loss":{"ce":0.5},"model_sha256":"c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86","num_examples":48,"num_excluded":0,"prototypes":{"global":8,"local":24},"prototypes_sha256":"c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12","round":2}','{"bytes_received":3552,"clients":{"ann":{"train_seconds":0.01},"bob":{"train_seconds":0.01},"cat":{"train_seconds":0.01},"zoe":{"train_seconds":0.01}},"round":2,"seconds":{"aggregating":0.0,"collecting":0.0,"evaluating":0.0,"total":0.0}}','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0, "committed": 1000.0}',NULL,'{"by_class": [3, 3, 2], "weights": [0.25, 0.29999999701976776, 0.75]}',NULL,NULL,NULL,'dcfab9ef99968a13f6e933ad6dadd0b4');
INSERT INTO "rounds" VALUES('waits-d60276ca',0,'committed','["ann"]','{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"initialising": 1000.0, "committed": 1000.0}',NULL,NULL,NULL,NULL,NULL,'12d71e7e18c3a6ac3054c7c0d958a720');
INSERT INTO "rounds" VALUES('waits-d60276ca',1,'evaluating','["ann", "bob", "cat", "zoe"]','{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}','','','{"collecting": 1000.0, "aggregating": 1000.0, "evaluating": 1000.0}',NULL,'{"by_class": [0, 0, 0], "weights": null}',NULL,'{"role": "model", "sha256": "312715e4e3810f5279cb20eb8fe471415cd69a476e958c9176057ebe71b7952c", "size_bytes": 360}','{"h": {"role": "h", "sha256": "0a9e5c38140f8eac7f3c37c5946a43f0bff7faa6b2ca0a85dd58e90e0aa9f0ab", "size_bytes": 288}}','079c9d9533f4d429085cf3467a5c92df');
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
INSERT INTO "run_labels" VALUES('done-92dc9867','["kept"]','für später',0,NULL,'37a3d0d06337706d1feb7882c385f5d1');
INSERT INTO "run_labels" VALUES('deleted-ee61375e','[]','',0,1000.0,'a99aefcf28917394137d0175fe7bcae5');
CREATE TABLE run_tags (
	tag VARCHAR(40) NOT NULL, 
	run_id VARCHAR(64) NOT NULL, 
	PRIMARY KEY (tag, run_id), 
	CONSTRAINT fk_run_tags_run_id FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO "run_tags" VALUES('kept','done-92dc9867');
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
INSERT INTO "runs" VALUES('deleted-ee61375e','deleted','d6f76155badbfb4543c0d510a78e110e2fd5d4a06b4a93fb60854843da9e7b73','deleted','completed','fedplcc','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null,"window":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false,"score":"auto"},"membership":{},"method":{"alpha":0.5,"average_decay":0.9,"averaging":"weighted","corr_margin":1.0,"corr_over":"class","global_average":"none","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"proto_pass":"after_training","proto_staleness":0,"proto_window":1,"ramp_rounds":0,"tau":0.07,"topk_rank":"weighted","unit_weights":false,"weights_by":"samples","weights_in":"sum","weights_over":"class"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedplcc","min_clients":null,"name":"deleted","patience":null,"rounds":1,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','d6f76155badbfb4543c0d510a78e110e2fd5d4a06b4a93fb60854843da9e7b73',1,0,'["ann", "bob", "cat", "zoe"]',1,'{"role": "model", "sha256": "422a468336fdac65af71dc576b5ae63b556dcf1ce9d986264c982427455798a5", "size_bytes": 360}','{"role": "global_cluster", "sha256": "558a2ec55f090fbdd130fd234331796d760e7698535e4ad5b5c28eed822012a8", "size_bytes": 484}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'8a7552defc8277756190a262589015a6');
INSERT INTO "runs" VALUES('done-92dc9867','done','f9720183ab839f002a741dc5bab865400763047f6e1bbdf82cba76abb45c4c58','done','completed','fedplcc','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null,"window":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false,"score":"auto"},"membership":{},"method":{"alpha":0.5,"average_decay":0.9,"averaging":"weighted","corr_margin":1.0,"corr_over":"class","global_average":"none","lambda1":100.0,"lambda2":1000.0,"merge_mean":"plain","min_cluster_size":1,"partition":"last","phi":0.5,"proto_pass":"after_training","proto_staleness":0,"proto_window":1,"ramp_rounds":0,"tau":0.07,"topk_rank":"weighted","unit_weights":false,"weights_by":"samples","weights_in":"sum","weights_over":"class"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedplcc","min_clients":null,"name":"done","patience":null,"rounds":2,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','f9720183ab839f002a741dc5bab865400763047f6e1bbdf82cba76abb45c4c58',2,0,'["ann", "bob", "cat", "zoe"]',2,'{"role": "model", "sha256": "c3a8206190472d3304c11fd2adbee9e6d9699d08c3ce92bede46ce1c67ddfd86", "size_bytes": 360}','{"role": "global_cluster", "sha256": "c305618f75e608ac331206e3f15fac0ade2cc9d7295fcaa4e2395d1f532e4f12", "size_bytes": 616}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'728df51cae02dd1eae15912a9fc09566');
INSERT INTO "runs" VALUES('waits-d60276ca','waits','082156204b240c15024f8f7bf7c35df6eba0edbcf9b0389455971054cb192474','waits','running','feddyn','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null,"window":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false,"score":"auto"},"membership":{},"method":{"adaptive":true,"alpha":0.01,"average_decay":0.9,"averaging":"weighted","evaluate":"mean","global_average":"none"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","bob","cat","zoe"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"feddyn","min_clients":null,"name":"waits","patience":null,"rounds":3,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','082156204b240c15024f8f7bf7c35df6eba0edbcf9b0389455971054cb192474',3,0,'["ann", "bob", "cat", "zoe"]',1,'{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'',1000.0,1000.0,NULL,NULL,NULL,NULL,NULL,'{"ann": 12, "bob": 12, "cat": 12, "zoe": 12}',NULL,NULL,NULL,NULL,'e1d6df2aa5ad5a0df6496d4e8d5bb41c');
INSERT INTO "runs" VALUES('pending-f324ac7d','pending','6746c60cb936ab42723275062fc249fb2203472ac703196ac08c6f1e416c533b','pending','pending','fedavg','{"admission":{"max_num_examples":null,"max_prototype_norm":null,"max_prototypes_per_class":null,"max_update_norm":null,"quarantine_after":null,"quarantined":[]},"data":{"classes":["a","b","c"],"image_size":32,"mean":[0.5,0.5,0.5],"std":[0.5,0.5,0.5],"test_every":5,"validation_every":null,"window":null},"evaluation":{"attacks":[],"batch_norm":"shared","confusion":false,"epsilon":null,"every":1,"last":10,"own_classes":false,"score":"auto"},"membership":{},"method":{"average_decay":0.9,"averaging":"weighted","global_average":"none"},"model":{"name":"resnet10","norm":"batch","options":{},"stem":"imagenet5x5"},"public":{"data":null,"num_images":5000},"quorum":{"deadline_s":null,"every_domain":false,"hard_deadline_s":null,"min_clients":null,"on_no_quorum":"wait","silence_s":120.0},"run":{"clients":["ann","nobody"],"cohort_size":null,"drop_classes":false,"initial_classes":null,"initial_model":null,"initial_prototypes":false,"keep_every":null,"method":"fedavg","min_clients":null,"name":"pending","patience":null,"rounds":2,"seed":0,"version":"0.2"},"stream":{"advance":"rounds","classes":null,"cohort":"round","epoch_model":"last","passes":1,"reload":"never","rounds_per_stage":null,"stages":1,"train_on":"current"},"training":{"adversarial":null,"augment":[],"batch_size":32,"clip_norm":null,"evaluation_batch_size":256,"learning_rate":0.01,"local_epochs":null,"local_steps":10,"mix_style":null,"momentum":0.9,"optimizer":"sgd","precision":"float32","prototype_statistics":"trained","schedule":"constant","schedule_rounds":null,"step_factor":null,"step_rounds":null,"threads":1,"warmup_rounds":0,"weight_decay":1e-05}}','6746c60cb936ab42723275062fc249fb2203472ac703196ac08c6f1e416c533b',2,0,'["ann", "nobody"]',-1,'null','{"role": "global_cluster", "sha256": "88604643f8c239d01e18989e61a24f93f3c3fc26cd4ae81711fc5cbef77bfe5a", "size_bytes": 256}',0,'',1000.0,1000.0,NULL,NULL,'{"kind": "waits_for_clients"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'deab076e7283c237739ce5050e7d95fd');
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
INSERT INTO "updates" VALUES('done-92dc9867',0,'ann',6,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {"feature_dim": [6], "parameters": [1, 2], "head": [0, 2], "batch_norm": []}, "metadata": {}}, "num_examples": 0, "num_excluded": 0, "class_counts": [], "losses": {}, "timings": {}, "num_prototypes": 0, "norm": null}','97581a02ecd755f47382e6815d30dcd6');
INSERT INTO "updates" VALUES('done-92dc9867',1,'bob',7,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "e3d928276587c42696bf0a23e63bcb3c0a61a73a8d531f0904fcb1c39fafb813", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.038598476949648}','3c7e2b8205bc1577e8ff7fabc57926b0');
INSERT INTO "updates" VALUES('done-92dc9867',1,'cat',8,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "fce70984b19f4707fc9a38ae8bb452ece5978ab129955df101a0e6bebc87d394", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.654700032481969}','47da4e4c02e0704170c6c3810413c24e');
INSERT INTO "updates" VALUES('done-92dc9867',1,'zoe',9,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "bdffc699c8acff92c18fc793fe75132b793ece2abe663de4ecc3724d3ca57c5f", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.094054726096716}','de847ac984cb15e12ad214c7729326dc');
INSERT INTO "updates" VALUES('done-92dc9867',1,'ann',10,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "674ac38a927efac72cac5db1cf64ecdc96ee74b44039a4aa534a2825ec03aded", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.762197147060303}','58c62bc7c5ed204cd74c1c26a1f48ebf');
INSERT INTO "updates" VALUES('done-92dc9867',2,'ann',11,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "104f5a451587fad048b9789f687a06b04646fed08842754438376849e1899c48", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "7de44ce0193590e2ae86a40b3532e159afcf621f3ee5688ab7988f15cb090883", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 7.132301703629715}','e619f24551b714cc344f758bd0be14ea');
INSERT INTO "updates" VALUES('done-92dc9867',2,'bob',12,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "d3ccd3c9f851d90aa66e94fc56aa844646fe7abbd917a2f94b0ce554f22fa81f", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "57f9a0699383e49110b95d419ed6a34f7d2e753fc084345de638a6b865db0d3e", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.848415639191676}','dffd09a2761630f6bb332fb85261aecc');
INSERT INTO "updates" VALUES('done-92dc9867',2,'cat',13,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "8a70e56026e11cdc4861d4c9ed352d50b260a586e2bb9db4ce561794dde9df21", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "0bdf7dec364269b8d6f7479c2e6e2839cdb3fd99e2b41e8a275ec5c75be91d32", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.100741295715641}','3cb20a0a373c79005efc8ab20d977d0c');
INSERT INTO "updates" VALUES('done-92dc9867',2,'zoe',14,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "8e6ba1239002607171747da0a220ec3f53077e5d68ced95c820c53beeb043a2e", "size_bytes": 360}], "prototype_sets": [{"role": "local_cluster", "sha256": "34f2424d6460a224024442671eb45e3c63c6dca5bab7a4c21ba65c96eec427cf", "size_bytes": 528}], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 0.5}, "timings": {"train_seconds": 0.01}, "num_prototypes": 6, "norm": 6.621298055423181}','aa72f0d4f1ec7fdefd188bd419503b16');
INSERT INTO "updates" VALUES('waits-d60276ca',0,'ann',15,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "54f76de8cea00986d871a939b6b88683fd943572b88dba4cee3af5e31f56ef20", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {"feature_dim": [6], "parameters": [1, 2], "head": [0, 2], "batch_norm": []}, "metadata": {}}, "num_examples": 0, "num_excluded": 0, "class_counts": [], "losses": {}, "timings": {}, "num_prototypes": 0, "norm": null}','7aac30c5d79f03f78fc648b4361d4972');
INSERT INTO "updates" VALUES('waits-d60276ca',1,'bob',16,'{"client_id": "bob", "payload": {"tensor_groups": [{"role": "model", "sha256": "805e89bcfe1a9fcae79d2fd4135d255edaa3604c5146dd03f6203357ce4348a0", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.038598476949648}','0f69cfb37958dd43397a25720f8fd118');
INSERT INTO "updates" VALUES('waits-d60276ca',1,'cat',17,'{"client_id": "cat", "payload": {"tensor_groups": [{"role": "model", "sha256": "75ed241a55149e4b0dbe41afea2e5eb34094d2e81011de52197e55467b3401c8", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.654700032481969}','bf8581291ec16fd23ec0b6af1f3c7973');
INSERT INTO "updates" VALUES('waits-d60276ca',1,'zoe',18,'{"client_id": "zoe", "payload": {"tensor_groups": [{"role": "model", "sha256": "7ae9739b53570acc235c38a247c5eef6d63124b8267bc593d4d8d30c243f4878", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.094054726096716}','543d015ad7c3b4d350f49a8787ad5d8a');
INSERT INTO "updates" VALUES('waits-d60276ca',1,'ann',19,'{"client_id": "ann", "payload": {"tensor_groups": [{"role": "model", "sha256": "10f40f0a0ba54daa698ef70b9faf3b95a47c4ac8957779c16b226823b9383aa3", "size_bytes": 360}], "prototype_sets": [], "scalars": {}, "int_lists": {}, "metadata": {}}, "num_examples": 12, "num_excluded": 0, "class_counts": [5, 3, 4], "losses": {"ce": 1.0}, "timings": {"train_seconds": 0.01}, "num_prototypes": 0, "norm": 6.762197147060303}','8cae0812f41ae4dd58e101de70bd8477');
CREATE TABLE writer (
	state VARCHAR(32) NOT NULL, 
	token VARCHAR(32) NOT NULL, 
	transactions INTEGER NOT NULL, 
	PRIMARY KEY (state)
);
INSERT INTO "writer" VALUES('a9872a7cd4c64aa7648b3bc12bf99b0f','b89686c6d9dc3cad05bd13f140028a41',52);
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
