"""A small, well-formed file of every format, written by hand; the third line is a second job."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THROUGHPUTS: dict[str, Any] = {
    "v100": {
        "('ResNet-18 (batch size 16)', 1)": {"null": 10.0},
        "('ResNet-18 (batch size 16)', 2)": {"null": 20.0},
        "('LM (batch size 5)', 1)": {"null": 5.0},
    }
}


@dataclass(frozen=True)
class Sample:
    """A file's name and lines; `header` lines come before the two rows."""

    file: str
    text: str
    format: str
    header: int = 1
    delimiter: str = ","

    def write(self, folder: Path, text: str | None = None) -> Path:
        """The file in `folder`, with other text if wanted."""
        path = folder / self.file
        path.write_text(self.text if text is None else text, encoding="utf-8")
        return path

    def with_cell(self, column: int, cell: str) -> str:
        """The text with one cell of the second row replaced."""
        lines = self.text.splitlines()
        cells = lines[self.header + 1].split(self.delimiter)
        cells[column] = cell
        lines[self.header + 1] = self.delimiter.join(cells)
        return "\n".join(lines) + "\n"


SAMPLES = {
    "own": Sample(
        "own.csv",
        "job,submitted,duration,gpus,nodes,share,cpus,memory,gpu_memory,priority,weight,deadline,"
        "limit,estimate,steps,min_gpus,max_gpus,kind,locality,on_preempt,checkpoint,restore,after\n"
        "a,10,60,4,,,,,,,,,,,,,,,,,,,\n"
        "b,20,30,8,2,1,4,1024,0,1,2.5,500,100,50,1000,4,16,train,rack,kill,5,7,a\n",
        "ganger",
    ),
    "philly": Sample(
        "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,8,23608.0,6214e9\n",
        "philly",
    ),
    "helios": Sample(
        "cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
        "queue\n"
        "1,uA,vcX,8,64,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:01:20,60,"
        "10\n"
        "2,uB,vcY,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:30,30,0\n",
        "helios",
    ),
    "venus": Sample(
        "venus.csv",
        "job_id,submit_time,arrival_s,service_sec,gpu_count,src_row\n"
        "363167,2020-03-18 04:01:39,0,172800,32,0\n"
        "394948,2020-03-25 17:00:06,651507,100,8,2\n",
        "helios",
    ),
    "acme": Sample(
        "trace_seren.csv",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
        "queue,gpu_time\n"
        "a1,u1,4,32,128,Pretrain,CANCELLED,2023-03-01 10:00:00+08:00,2023-03-01 10:00:05+08:00,"
        "2023-03-01 11:00:05+08:00,3600,5,115200\n"
        "a2,u2,1,1,8,Eval,COMPLETED,2023-03-01 10:00:30+08:00,2023-03-01 10:00:30+08:00,"
        "2023-03-01 10:01:00+08:00,30,0,30\n",
        "acme",
    ),
    "pai": Sample(
        "pai_sample.csv",
        "job_name,task_name,arrival_s,service_sec,gpu_count,src_row\n"
        "e292,worker,16670,100,8,1\n"
        "5d38,tensorflow,24488,200,2,2\n",
        "pai",
    ),
    "pai_tasks": Sample(
        "pai_task_table.csv",
        "j1,worker,4.0,Terminated,100.0,200.0,600.0,29.3,50.0,T4\n"
        "j2,tensorflow,2.0,Terminated,150.0,450.0,600.0,29.3,200.0,V100\n",
        "pai",
        header=0,
    ),
    "openb": Sample(
        "pods.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "p0,6000,12288,1,460,V100M16|V100M32,LS,Running,0,100,10\n"
        "p1,12000,16384,2,1000,,BE,Succeeded,5,65,5\n",
        "openb",
    ),
    "itp": Sample(
        "elasticflow.csv",
        "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"
        "x-1,100,3249,bert,800,32,4,600\n"
        "x-2,200,10,vgg16,900,64,1,500\n",
        "itp",
    ),
    "gavel": Sample(
        "jobs.trace",
        "ResNet-18 (batch size 16)\tcmd %s\t-n\t1\t1000\t0.000000\t1\n"
        "ResNet-18 (batch size 16)\tcmd %s\t-n\t1\t4000\t60.000000\t2\n",
        "gavel",
        header=0,
        delimiter="\t",
    ),
    "gavel10": Sample(
        "physical.trace",
        "LM (batch size 5)\tcmd\tdir\t-n\t1\t1000\t1\t1\t-1.000000\t0\n"
        "ResNet-18 (batch size 16)\tcmd\tdir\t-n\t1\t4000\t2\t5\t2.0\t60\n",
        "gavel",
        header=0,
        delimiter="\t",
    ),
    "shockwave": Sample(
        "dynamic.trace",
        "LM (batch size 10)\tcmd\tdir\t--steps\t1\t134583\t1\tgns\t1\t-1.000000\t1418\t0\n"
        "ResNet-18 (batch size 32)\tcmd\tdir\t-n\t1\t1434\t2\taccordion\t1\t1.5\t3338\t55\n",
        "gavel",
        header=0,
        delimiter="\t",
    ),
    "tiresias": Sample(
        "60_job.csv",
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "0,1,0,606,vgg19,164,30\n"
        "1,8,30,133,vgg11,147,23\n",
        "tiresias",
    ),
    "muri": Sample(
        "muri.csv",
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,"
        "iteration_time,resource_time_0,resource_time_1,resource_time_2,priority\n"
        "0,4,0,488,bert,4,92000,11174000,190,0.5,163,18,0\n"
        "1,4,1456000,487,bert,8,93000,1456000,190,0.5,163,18,1\n",
        "tiresias",
    ),
    "chronus": Sample(
        "chronus.csv",
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type\n"
        "0,vc_a,1,10,5049,vgg16,5,14,8,10,0,strict\n"
        "1,vc_b,2,30,296,alexnet,7,8,30-40,10-5,1,best\n",
        "tiresias",
    ),
    "pollux": Sample(
        "workload-1.csv",
        "name,time,application,num_replicas,batch_size\n"
        "cifar10-0,107,cifar10,2,2048\n"
        "bert-1,110,bert,1,384\n",
        "pollux",
    ),
    "swf": Sample(
        "log.swf",
        "; MaxNodes: 4\n; MaxProcs: 32\n"
        "1 0 5 222 80 -1 -1 64 14400 -1 1 7 2 -1 1 -1 -1 -1\n"
        "2 1136 0 60 8 -1 -1 -1 -1 -1 5 8 2 -1 1 -1 1 -1\n",
        "swf",
        header=2,
        delimiter=" ",
    ),
    "sacct": Sample(
        "sacct.txt",
        "JobID|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|ReqTRES|User|Account|"
        "Partition|QOS|Priority\n"
        "100|COMPLETED|2024-05-01T10:00:00|2024-05-01T10:05:00|2024-05-01T11:05:00|3600|120|"
        "billing=8,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|gres/gpu:a100=4|ann|bio|gpu|"
        "normal|1000\n"
        "101_3|TIMEOUT|2024-05-01T10:01:00|2024-05-01T10:02:00|2024-05-01T10:12:00|600|10|"
        "cpu=4,gres/gpu=1|gres/gpu=1|bob|chem|gpu|normal|900\n",
        "sacct",
        delimiter="|",
    ),
}

PHILLY_LOG = """[
 {"status": "Pass", "vc": "6214e9", "jobid": "application_1", "user": "u1",
  "submitted_time": "2017-10-09 07:02:29",
  "attempts": [
    {"start_time": "2017-10-09 07:02:40", "end_time": "2017-10-09 07:03:40",
     "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]},
    {"start_time": "2017-10-09 07:10:00", "end_time": "2017-10-09 07:10:30",
     "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]},
 {"status": "Killed", "vc": "11cb48", "jobid": "application_2", "user": "u2",
  "submitted_time": "2017-10-09 07:00:00", "attempts": []},
 {"status": "Failed", "vc": "11cb48", "jobid": "application_3", "user": "u2",
  "submitted_time": "2017-10-09 08:00:00",
  "attempts": [{"start_time": "2017-10-09 08:00:00", "end_time": null,
    "detail": [{"ip": "m1", "gpus": ["gpu0"]}]}]}
]"""


def options_of(name: str) -> dict[str, Any]:
    """What reading a sample needs beside its path."""
    return {"throughputs": THROUGHPUTS} if name in ("gavel", "gavel10") else {}


def gzipped(path: Path) -> Path:
    """A gzip copy beside the file."""
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    return target
