BEGIN TRANSACTION;
CREATE TABLE admissions (
  id                      INTEGER PRIMARY KEY,
  gpu_id                  INTEGER NOT NULL REFERENCES gpus,
  problem_id              INTEGER NOT NULL REFERENCES problems,
  candidate_id            INTEGER NOT NULL REFERENCES candidates,
  toolchain_id            INTEGER NOT NULL REFERENCES toolchains,
  reference               TEXT NOT NULL,
  binary_id               INTEGER NOT NULL REFERENCES binaries,
  num_cases               INTEGER NOT NULL,
  relative_l2             REAL NOT NULL,
  worst_case_relative_l2  REAL NOT NULL,
  max_abs_error           REAL NOT NULL,
  created_at              TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id, reference)
) STRICT;
INSERT INTO "admissions" VALUES(1,1,1,1,1,'cpu-double-1',1,17,0.0015,0.004,0.02,'2026-01-02T03:04:05Z');
INSERT INTO "admissions" VALUES(2,1,4,2,1,'cpu-double-1',2,17,0.0015,0.004,0.02,'2026-01-02T03:04:05Z');
CREATE TABLE binaries (
  id             INTEGER PRIMARY KEY,
  key            TEXT NOT NULL UNIQUE,    -- digest of all inputs
  content        TEXT,                    -- digest of the cubin; NULL when the compile failed
  cubin          BLOB,                    -- zstd; NULL when the compile failed
  cubin_bytes    INTEGER NOT NULL,
  variant        TEXT NOT NULL,
  arch           TEXT NOT NULL,
  nvrtc_version  TEXT NOT NULL,
  options        TEXT NOT NULL,
  notes          TEXT NOT NULL,           -- ptxas notes, one a line
  log            TEXT NOT NULL,
  compile_ms     REAL NOT NULL,
  failed         INTEGER NOT NULL,
  created_at     TEXT NOT NULL,
  CHECK (failed IN (0, 1) AND (cubin IS NULL) = failed AND (content IS NULL) = failed)
) STRICT;
INSERT INTO "binaries" VALUES(1,'bebe7afb245fac658e262152f53cd8a0','ccf175df284b25365f4bebaf7a6b7db3',X'28B52FFD60B80AED0000A86F6E65706F6671706772716873726974736A75746B01004187FE6402',3000,'splitkv/d256/ring/bf16/m16n64s2w8','sm_90a','13.0','--std=c++20','C7510: first
C7511: second','ptxas info: line 1
ptxas info: line 2',321.5,0,'2026-11-30T09:27:03Z');
INSERT INTO "binaries" VALUES(2,'ad5c63c1452ee4e3aca3609032a9798a','e48c1fb0ff7975cc41a2d1b4e9656a61',X'28B52FFD60B80AED0000A874776F757870767971777A72787B73797C747A7D7501004187FE6402',3000,'splitkv/d512/contiguous/bf16/m16n64s2w8','sm_90a','13.0','--std=c++20','C7510: first
C7511: second','ptxas info: line 1
ptxas info: line 2',321.5,0,'2026-11-30T09:27:03Z');
INSERT INTO "binaries" VALUES(3,'01d442bc82bd286fd4830d196d9d43e3','7331c6aea2813b30e80f78e470303b1b',X'28B52FFD608812650100340274687265657569736666766A746767776B756868786C766969796D776A6A7A6E786B6B0100131BD3AB27',5000,'splitkv/d64/contiguous/bf16/m16n16s1w2','sm_90a','13.0','--std=c++20','C7510: first
C7511: second','ptxas info: line 1
ptxas info: line 2',321.5,0,'2026-11-30T09:27:03Z');
INSERT INTO "binaries" VALUES(4,'5508f3bdd90a41daf7c170336e83ce9a',NULL,NULL,0,'v','sm_90a','13.0','','','error: no',0.0,1,'2026-11-30T09:27:03Z');
CREATE TABLE binary_kernels (
  binary_id          INTEGER NOT NULL REFERENCES binaries ON DELETE CASCADE,
  kernel_idx         INTEGER NOT NULL,
  symbol             TEXT NOT NULL,
  registers          INTEGER NOT NULL,
  stack_bytes        INTEGER NOT NULL,
  spill_store_bytes  INTEGER NOT NULL,
  spill_load_bytes   INTEGER NOT NULL,
  static_smem_bytes  INTEGER NOT NULL,
  PRIMARY KEY (binary_id, kernel_idx)
) STRICT, WITHOUT ROWID;
INSERT INTO "binary_kernels" VALUES(1,0,'splitkv_one',128,0,0,0,1024);
INSERT INTO "binary_kernels" VALUES(1,1,'combine_one',40,16,8,4,0);
INSERT INTO "binary_kernels" VALUES(2,0,'splitkv_two',128,0,0,0,1024);
INSERT INTO "binary_kernels" VALUES(2,1,'combine_two',40,16,8,4,0);
INSERT INTO "binary_kernels" VALUES(3,0,'splitkv_three',128,0,0,0,1024);
INSERT INTO "binary_kernels" VALUES(3,1,'combine_three',40,16,8,4,0);
CREATE TABLE candidates (
  id    INTEGER PRIMARY KEY,
  text  TEXT NOT NULL UNIQUE
) STRICT;
INSERT INTO "candidates" VALUES(1,'splitkv/m16n64s2w8/x33');
INSERT INTO "candidates" VALUES(2,'splitkv/m16n64s2w8/x7');
CREATE TABLE gpus (
  id            INTEGER PRIMARY KEY,
  identity      TEXT NOT NULL UNIQUE,     -- the key; the columns below repeat parts of it
  name          TEXT NOT NULL,
  arch          TEXT NOT NULL,
  num_sms       INTEGER NOT NULL,
  memory_bytes  INTEGER NOT NULL
) STRICT;
INSERT INTO "gpus" VALUES(1,'Sample GPU|sm_90a|9.0|132|150323855360|0','Sample GPU','sm_90a',132,150323855360);
CREATE TABLE measurements (
  id              INTEGER PRIMARY KEY,
  gpu_id          INTEGER NOT NULL REFERENCES gpus,
  problem_id      INTEGER NOT NULL REFERENCES problems,  -- at one kv_len: kv_min = kv_max
  candidate_id    INTEGER NOT NULL REFERENCES candidates,
  toolchain_id    INTEGER NOT NULL REFERENCES toolchains,
  median_us       REAL NOT NULL CHECK (median_us > 0),
  spread_us       REAL NOT NULL CHECK (spread_us >= 0),
  num_samples     INTEGER NOT NULL CHECK (num_samples >= 1),
  method          INTEGER NOT NULL,
  driver_version  TEXT NOT NULL,
  created_at      TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id)
) STRICT;
INSERT INTO "measurements" VALUES(1,1,2,1,1,4.5,0.25,9,1,'13.0','2026-01-02T03:04:05Z');
INSERT INTO "measurements" VALUES(2,1,3,1,1,12.25,0.25,9,1,'13.0','2026-01-02T03:04:05Z');
INSERT INTO "measurements" VALUES(3,1,5,2,1,4.5,0.25,9,1,'13.0','2026-01-02T03:04:05Z');
INSERT INTO "measurements" VALUES(4,1,6,2,1,12.25,0.25,9,1,'13.0','2026-01-02T03:04:05Z');
CREATE TABLE problems (
  id      INTEGER PRIMARY KEY,
  text    TEXT NOT NULL UNIQUE,
  shape   TEXT NOT NULL,                  -- the text at kv1: equal for problems that differ in kv
  kv_min  INTEGER NOT NULL,
  kv_max  INTEGER NOT NULL,
  CHECK (1 <= kv_min AND kv_min <= kv_max)
) STRICT;
INSERT INTO "problems" VALUES(1,'verify/b1/q8/kv1-4096/h32x16/d256/w1024/ring/bf16','verify/b1/q8/kv1/h32x16/d256/w1024/ring/bf16',1,4096);
INSERT INTO "problems" VALUES(2,'verify/b1/q8/kv1/h32x16/d256/w1024/ring/bf16','verify/b1/q8/kv1/h32x16/d256/w1024/ring/bf16',1,1);
INSERT INTO "problems" VALUES(3,'verify/b1/q8/kv4096/h32x16/d256/w1024/ring/bf16','verify/b1/q8/kv1/h32x16/d256/w1024/ring/bf16',4096,4096);
INSERT INTO "problems" VALUES(4,'decode/b1/q1/kv1-131072/h32x4/d512/contiguous/bf16','decode/b1/q1/kv1/h32x4/d512/contiguous/bf16',1,131072);
INSERT INTO "problems" VALUES(5,'decode/b1/q1/kv1/h32x4/d512/contiguous/bf16','decode/b1/q1/kv1/h32x4/d512/contiguous/bf16',1,1);
INSERT INTO "problems" VALUES(6,'decode/b1/q1/kv131072/h32x4/d512/contiguous/bf16','decode/b1/q1/kv1/h32x4/d512/contiguous/bf16',131072,131072);
CREATE TABLE rejections (
  id            INTEGER PRIMARY KEY,
  gpu_id        INTEGER NOT NULL REFERENCES gpus,
  problem_id    INTEGER NOT NULL REFERENCES problems,
  candidate_id  INTEGER NOT NULL REFERENCES candidates,
  toolchain_id  INTEGER NOT NULL REFERENCES toolchains,
  stage         TEXT NOT NULL,
  reason        TEXT NOT NULL,
  detail        TEXT NOT NULL,
  created_at    TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, candidate_id, toolchain_id)
) STRICT;
INSERT INTO "rejections" VALUES(1,1,1,1,1,'time','slow','us=9','2026-11-30T09:27:03Z');
CREATE TABLE toolchains (
  id               INTEGER PRIMARY KEY,
  template_digest  TEXT NOT NULL,
  nvrtc_version    TEXT NOT NULL,
  options          TEXT NOT NULL,
  UNIQUE (template_digest, nvrtc_version, options)
) STRICT;
INSERT INTO "toolchains" VALUES(1,'397dd339c2519da923367b53b7a47cbf','13.0','--std=c++20 -default-device');
CREATE TABLE winners (
  id                 INTEGER PRIMARY KEY,
  gpu_id             INTEGER NOT NULL REFERENCES gpus,
  problem_id         INTEGER NOT NULL REFERENCES problems,
  toolchain_id       INTEGER NOT NULL REFERENCES toolchains,
  candidate_id       INTEGER NOT NULL REFERENCES candidates,
  binary_id          INTEGER NOT NULL REFERENCES binaries,
  admission_id       INTEGER NOT NULL REFERENCES admissions,
  worst_regret       REAL NOT NULL,
  runner_up          TEXT NOT NULL,       -- candidate text; '' when the winner was alone
  margin_runner_up   REAL NOT NULL,
  default_candidate  TEXT NOT NULL,
  margin_default     REAL NOT NULL,
  method             INTEGER NOT NULL,
  driver_version     TEXT NOT NULL,
  created_at         TEXT NOT NULL,
  UNIQUE (gpu_id, problem_id, toolchain_id)
) STRICT;
INSERT INTO "winners" VALUES(1,1,1,1,1,1,1,0.03,'splitkv/m16n32s2w4/x8',0.02,'splitkv/m16n64s2w4/x1',0.4,1,'13.0','2026-01-02T03:04:05Z');
INSERT INTO "winners" VALUES(2,1,4,1,2,2,2,0.03,'splitkv/m16n32s2w4/x8',0.02,'splitkv/m16n64s2w4/x1',0.4,-1,'13.0','2026-01-02T03:04:05Z');
CREATE INDEX problems_by_shape ON problems (shape, kv_min, kv_max);
CREATE VIEW winner_list AS
  SELECT gpus.name AS gpu, gpus.arch, problems.text AS problem, candidates.text AS candidate,
         winners.worst_regret, winners.margin_default, winners.runner_up, winners.driver_version,
         toolchains.nvrtc_version, winners.created_at
    FROM winners JOIN gpus ON gpus.id = winners.gpu_id
    JOIN problems ON problems.id = winners.problem_id
    JOIN candidates ON candidates.id = winners.candidate_id
    JOIN toolchains ON toolchains.id = winners.toolchain_id;
CREATE VIEW measurement_list AS
  SELECT gpus.name AS gpu, problems.shape, problems.kv_min AS kv_len,
         candidates.text AS candidate, measurements.median_us, measurements.spread_us,
         measurements.num_samples, measurements.driver_version, measurements.created_at
    FROM measurements JOIN gpus ON gpus.id = measurements.gpu_id
    JOIN problems ON problems.id = measurements.problem_id
    JOIN candidates ON candidates.id = measurements.candidate_id;
CREATE VIEW rejection_list AS
  SELECT gpus.name AS gpu, problems.text AS problem, candidates.text AS candidate,
         rejections.stage, rejections.reason, rejections.detail, rejections.created_at
    FROM rejections JOIN gpus ON gpus.id = rejections.gpu_id
    JOIN problems ON problems.id = rejections.problem_id
    JOIN candidates ON candidates.id = rejections.candidate_id;
COMMIT;
PRAGMA application_id = 1635022190;
PRAGMA user_version = 1;
