"""Words of screen 3, Calibration."""

EN = {
    "calibration.empty": "No forecaster is installed: nothing is forecast, so nothing is "
    "calibrated.",
    "calibration.fcfs": "The queue's order is FCFS: by tier (priority, default, flex), then first "
    "come, first served.",
    "calibration.leads": "Enter shows the queue.",
    "calibration.forecaster": "forecaster",
    "calibration.coverage": "p90 covers",
    "calibration.state_ok": "ok",
    "calibration.ticks": "ticks",
    "calibration.tick": "late p99 {}, over {}",
    "calibration.jobs": "JOB",
    "calibration.eta": "ETA {}",
    "calibration.held": "  HELD",
    "calibration.hint_queue": "the queue",
}

ZH = {
    "calibration.empty": "未安装预测器：不作预测，也无需校准。",
    "calibration.fcfs": "队列按 FCFS 排序：先按优先级 (priority, default, flex)，再按先到先服务。",
    "calibration.leads": "按 Enter 查看队列。",
    "calibration.forecaster": "预测器",
    "calibration.coverage": "p90 覆盖率",
    "calibration.state_ok": "正常",
    "calibration.ticks": "节拍",
    "calibration.tick": "迟到 p99 {}，超时 {}",
    "calibration.jobs": "任务",
    "calibration.eta": "剩余 {}",
    "calibration.held": "  已暂停",
    "calibration.hint_queue": "队列",
}
