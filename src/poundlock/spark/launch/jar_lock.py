"""The JVM parts that are fetched: which modules, in which version, with which SHA-256.

A set is complete: together with the jars it borrows from pyspark it needs nothing else, so nothing is ever resolved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: where a Maven repository keeps it and the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of the file, as Maven repositories name it."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarPins:
    """A named set of jars.

    Args:
        what: what the set is for, in words that fit a progress line.
        pins: the jars to fetch.
        borrowed: artifacts taken from pyspark's own jars, in whatever version is there.
        spark: the pyspark versions (major.minor) the set was tried with; empty = does not depend on it.
    """

    what: str
    pins: tuple[Pin, ...]
    borrowed: tuple[str, ...] = ()
    spark: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """16 hex digits that change with any pin."""
        return hashlib.sha256("".join(f"{p.file}:{p.sha256}\n" for p in self.pins).encode()).hexdigest()[:16]


def _pins(table: str) -> tuple[Pin, ...]:
    words = table.split()
    return tuple(Pin(*words[i : i + 4]) for i in range(0, len(words), 4))


# pip's pyspark has no Kafka connector. That of 4.2.0 is the newest published, and runs on pyspark 4.2 and 4.3; the
# newest token provider is 4.0.0. Their other dependencies are in pyspark/jars.
_CONNECTOR = _pins("""
org.apache.spark spark-sql-kafka-0-10_2.13 4.2.0
  64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705
org.apache.spark spark-token-provider-kafka-0-10_2.13 4.0.0
  f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767
org.apache.kafka kafka-clients 3.9.2
  014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8
org.apache.commons commons-pool2 2.13.1
  f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f
""")

# The class path of kafka_2.13 4.3.0. pyspark's metrics-core is another library than this one (Yammer's), and Spark 3.5 has another
# Scala: not borrowed.
_BROKER = _pins("""
com.dynatrace.hash4j hash4j 0.22.0
  23028a3fd006e530bf495f551083208187cafd8f80624d048eba56442f16a50e
com.fasterxml.jackson.dataformat jackson-dataformat-csv 2.21.2
  682f8c7977e02a42748426bf54946e32e52e2f80b84b6642801ab12bd541368a
com.fasterxml.jackson.datatype jackson-datatype-jdk8 2.21.2
  e581bbf3fc5622d16b57366dd41e10fc56921fb202879de2ef487f87dd9b30e7
com.github.ben-manes.caffeine caffeine 3.2.0
  ec411dfdf0c03f25218648ce89861630b71680e5858a9a7278ebac8e55cab3d7
com.google.re2j re2j 1.8
  7b52c72156dd7f98b3237a5b35c1d34fba381b21048c89208913ad80a45dfbd7
com.typesafe.scala-logging scala-logging_2.13 3.9.6
  0ad0c3f4d89d538b3b6c300158555e266aa69cf1b5f6522aba8b5bad238eb994
com.yammer.metrics metrics-core 2.2.0
  6b7a14a6f34c10f8683f7b5e2f39df0f07b58c7dff0e468ebbc713905c46979c
commons-beanutils commons-beanutils 1.11.0
  9e44ba68ec9a3f21286fa2a8bbb003b735c0f69101bb43144b79f4f8aaa74709
commons-collections commons-collections 3.2.2
  eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8
commons-digester commons-digester 2.1
  e0b2b980a84fc6533c5ce291f1917b32c507f62bcad64198fff44368c2196a3d
commons-logging commons-logging 1.3.5
  6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4
commons-validator commons-validator 1.10.1
  ed74711a78d793ca37f6075e4a1e93d107233dfd20d0bb17e32bad88d38e56aa
net.sf.jopt-simple jopt-simple 5.0.4
  df26cc58f235f477db07f753ba5a3ab243ebe5789d9f89ecf68dd62ea9a66c28
net.sourceforge.argparse4j argparse4j 0.7.0
  65ceb669d88f63306c680f8088bbf765bbca72d288a61a03703000076c3d3f56
org.apache.kafka kafka-clients 4.3.0
  97a5b492d4ad658fd2dfba969fa0e403c2e38c971fb1e083da4e391471925fc1
org.apache.kafka kafka-coordinator-common 4.3.0
  245f2d1ebe0559efb7fc7615cda06f5c25b47e98d137a354a05cc50687821244
org.apache.kafka kafka-group-coordinator 4.3.0
  98bf277fca9facf134a7599a5c13dc146b9fbaf5ce961dd412914d3ff9b44356
org.apache.kafka kafka-group-coordinator-api 4.3.0
  c78dbb49e91bb0f735dc03d07a66f1cb1c0e1db4bf6c2d9a57811c744d93ca5b
org.apache.kafka kafka-metadata 4.3.0
  4cf62c7bea64ff57ccd150ac457b02216e28801472caefd436377cbedd29a1c5
org.apache.kafka kafka-raft 4.3.0
  7517424a299da3e9fcdeccd52058b3ca6e95a1ed7feb9a32c3e12836d02cff8d
org.apache.kafka kafka-server 4.3.0
  4e94e517a4b1c86ee1d41401d0c394556880abba515c7ca4f4eb229a4673422c
org.apache.kafka kafka-server-common 4.3.0
  f272a83ad222b2747635239cdb2601c0a3f83fc874b4a1adf104afb8daf66133
org.apache.kafka kafka-share-coordinator 4.3.0
  3848748f35dfe8b3b8e39cc546d129e586b5e039f0d10459d4b0bf05cefdecaa
org.apache.kafka kafka-storage 4.3.0
  9e13c0cd8de0bf1fc24cad5d498b21c6683815e771a7148c43fac79b6a515c79
org.apache.kafka kafka-storage-api 4.3.0
  dd4e05a693dd9e546545a70cff6c36b4125fefd067df6126541e23156df315e6
org.apache.kafka kafka-tools-api 4.3.0
  4794083021c84cb068f0865308791f076e66e609db5ba6f6aaed858aedacb926
org.apache.kafka kafka-transaction-coordinator 4.3.0
  1f6cb1ebf449a6772ca22f7470b206a1845bd172fe64131848c80be7c13aa096
org.bitbucket.b_c jose4j 0.9.6
  7314af50cde9c99e8eaf43eee617a23edcc6bb43036221064355094999d837ef
org.hdrhistogram HdrHistogram 2.2.2
  22d1d4316c4ec13a68b559e98c8256d69071593731da96136640f864fa14fad8
org.jspecify jspecify 1.0.0
  1fad6e6be7557781e4d33729d49ae1cdc8fdda6fe477bb0cc68ce351eafdfbab
org.pcollections pcollections 4.0.2
  2bbeef5797a241300c4f7513cd546239629ed7deda4fc0c31df90bb95f5f13ef
org.scala-lang scala-library 2.13.18
  4e85d96ff7bc7dc627985523c3541b9917aaa08e956391380c42db21a2c4e5a0
org.scala-lang scala-reflect 2.13.18
  6935ff1982b2ac93d695f15aa66921be2f602921277afe002f018fd8c7d6e29b
org.apache.kafka kafka_2.13 4.3.0
  e3669cb733f657689f71cba145af51022f29cebba81d8bf69699274b46c70da8
""")

_BROKER_BORROWS = (
    "jackson-core", "jackson-databind", "jackson-annotations", "jackson-dataformat-yaml", "snakeyaml", "zstd-jni",
    "snappy-java", "lz4-java", "slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl",
)  # fmt: skip

# A real namenode and datanode of the Hadoop that pyspark 4.2 and 4.3 come with; all else is in pyspark/jars.
_HDFS = _pins("""
org.apache.hadoop hadoop-client-minicluster 3.5.0
  06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c
""")

# The resource manager asks for Bouncy Castle when it starts; all else of YARN is in the jar above.
_YARN = _pins("""
org.bouncycastle bcpkix-jdk18on 1.82
  bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63
org.bouncycastle bcprov-jdk18on 1.82
  14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce
org.bouncycastle bcutil-jdk18on 1.82
  4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d
""")

# Hadoop's S3 client, of the Hadoop that pyspark 4.2 and 4.3 come with, on the parts of Amazon's SDK that it uses: the bundle
# that it asks for is 659 MB. HTTP client, logging and the rest are in pyspark/jars; netty's client is for what is not used.
_S3A = _pins("""
org.apache.hadoop hadoop-aws 3.5.0
  66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa
org.reactivestreams reactive-streams 1.0.4
  f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28
software.amazon.s3.analyticsaccelerator analyticsaccelerator-s3 1.3.1
  4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e
software.amazon.awssdk annotations 2.35.4
  6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8
software.amazon.awssdk apache-client 2.35.4
  6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740
software.amazon.awssdk arns 2.35.4
  c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380
software.amazon.awssdk auth 2.35.4
  6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994
software.amazon.awssdk aws-core 2.35.4
  fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623
software.amazon.awssdk aws-query-protocol 2.35.4
  9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f
software.amazon.awssdk aws-xml-protocol 2.35.4
  4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d
software.amazon.awssdk checksums-spi 2.35.4
  88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec
software.amazon.awssdk checksums 2.35.4
  94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948
software.amazon.awssdk crt-core 2.35.4
  2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62
software.amazon.awssdk endpoints-spi 2.35.4
  ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00
software.amazon.awssdk http-auth-aws-eventstream 2.35.4
  709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd
software.amazon.awssdk http-auth-aws 2.35.4
  c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01
software.amazon.awssdk http-auth-spi 2.35.4
  4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c
software.amazon.awssdk http-auth 2.35.4
  3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491
software.amazon.awssdk http-client-spi 2.35.4
  728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb
software.amazon.awssdk identity-spi 2.35.4
  188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf
software.amazon.awssdk json-utils 2.35.4
  80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc
software.amazon.awssdk metrics-spi 2.35.4
  c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487
software.amazon.awssdk profiles 2.35.4
  0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8
software.amazon.awssdk protocol-core 2.35.4
  f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5
software.amazon.awssdk regions 2.35.4
  77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca
software.amazon.awssdk retries-spi 2.35.4
  668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd
software.amazon.awssdk retries 2.35.4
  f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469
software.amazon.awssdk s3-transfer-manager 2.35.4
  0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476
software.amazon.awssdk s3 2.35.4
  f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc
software.amazon.awssdk sdk-core 2.35.4
  fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4
software.amazon.awssdk sts 2.35.4
  8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2
software.amazon.awssdk third-party-jackson-core 2.35.4
  32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea
software.amazon.awssdk utils-lite 2.35.4
  e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be
software.amazon.awssdk utils 2.35.4
  642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8
software.amazon.eventstream eventstream 1.0.1
  0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822
""")

# PostgreSQL's own JDBC driver, for Spark's JDBC writer beside which the benchmark of PostgresSink runs, and for JdbcSink.
_POSTGRESQL = _pins("""
org.postgresql postgresql 42.7.8
  2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7
""")

JAR_SETS: Mapping[str, JarPins] = MappingProxyType(
    {
        "kafka": JarPins(what="Spark's Kafka connector", pins=_CONNECTOR, spark=("4.2", "4.3")),
        "kafka-broker": JarPins(what="the Kafka broker for trials and tests", pins=_BROKER, borrowed=_BROKER_BORROWS),
        "s3a": JarPins(what="Spark's access to S3", pins=_S3A, spark=("4.2", "4.3")),
        "hdfs-minicluster": JarPins(what="the HDFS cluster for trials and tests", pins=_HDFS, spark=("4.2", "4.3")),
        "yarn-minicluster": JarPins(
            what="what YARN for trials and tests needs besides", pins=_YARN, spark=("4.2", "4.3")
        ),
        "postgresql-jdbc": JarPins(what="PostgreSQL's JDBC driver", pins=_POSTGRESQL),
    }
)
